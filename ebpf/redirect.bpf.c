/* SPDX-License-Identifier: Apache-2.0
 *
 * For benches only: what the kernel can do at most here. Each frame leaves by one interface, unread, uncounted, whatever it is. No part of the XDP level: benches/offload/run compiles it
 * for each of two interfaces, with the number of the other one as TARGET.
 */
#include "bpf.h"

char licence[] SEC("license") = "Apache-2.0";

static long (*const bpf_redirect)(__u32 ifindex, __u64 flags) = (void *)BPF_FUNC_redirect;

SEC("xdp")
int redirect(struct xdp_md *context)
{
	(void)context;
	return bpf_redirect(TARGET, 0);
}
