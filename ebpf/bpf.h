/* SPDX-License-Identifier: Apache-2.0
 *
 * What a BPF program of this folder needs beyond the kernel's own headers: sections, descriptions of maps (as BTF tells them
 * to a loader) and the helpers that are called. Numbers of helpers are the kernel's, from <linux/bpf.h>.
 *
 * None of the helpers is kept by the kernel for programs under the GPL: the programs here say "Apache-2.0", and the kernel
 * refuses to load a program that calls one which it may not. */
#ifndef BARTIZAN_BPF_H
#define BARTIZAN_BPF_H

#include <linux/bpf.h>
#include <linux/types.h>

#define SEC(name) __attribute__((section(name), used))
#define INLINE static inline __attribute__((always_inline))
/* What is written before it is written first: the compiler moves nothing over it. */
#define BARRIER() __asm__ __volatile__("" ::: "memory")
/* The compiler takes a variable for any number from here on, and does not compute it anew where it is asked again: of that the verifier would not know that it is the same. */
#define SETTLED(variable) __asm__ __volatile__("" : "+r"(variable))

/* Members of a map's description: a number is the length of an array, a type is what a pointer points to. */
#define NUMBER(name, value) int(*name)[value]
#define TYPE(name, type) __typeof__(type) *name

static void *(*const bpf_map_lookup_elem)(void *map, const void *key) = (void *)BPF_FUNC_map_lookup_elem;
static long (*const bpf_map_update_elem)(void *map, const void *key, const void *value,
					 __u64 flags) = (void *)BPF_FUNC_map_update_elem;
static __u32 (*const bpf_get_smp_processor_id)(void) = (void *)BPF_FUNC_get_smp_processor_id;
static long (*const bpf_redirect_map)(void *map, __u64 key, __u64 flags) = (void *)BPF_FUNC_redirect_map;
static __u64 (*const bpf_ktime_get_boot_ns)(void) = (void *)BPF_FUNC_ktime_get_boot_ns;
static __u64 (*const bpf_ktime_get_ns)(void) = (void *)BPF_FUNC_ktime_get_ns;
static __u32 (*const bpf_get_prandom_u32)(void) = (void *)BPF_FUNC_get_prandom_u32;
static __u64 (*const bpf_xdp_get_buff_len)(struct xdp_md *context) = (void *)BPF_FUNC_xdp_get_buff_len;

#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
#define BE16(x) __builtin_bswap16(x)
#define BE64(x) __builtin_bswap64(x)
#define BE32(x) __builtin_bswap32(x)
#else
#define BE16(x) (x)
#define BE32(x) (x)
#define BE64(x) (x)
#endif

#endif
