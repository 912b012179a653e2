// SPDX-License-Identifier: Apache-2.0
// One cycle of a model at a time, for crates/rtl/src/model.rs, which has the same structure. Compiled once
// for each configuration: MODEL is the class that Verilator made, MODEL_NAME the name in the functions.
#include MODEL_HEADER
#include "verilated.h"

#include <cstdint>
#include <cstring>

namespace {

// The wires of a cycle: what the test drives, then what the model drove before the clock edge.
struct Wires {
    uint8_t reset_n, in_valid, in_last, in_user, cpu_ready, port_ready;
    uint8_t write_valid, write_strobes, read_valid, pad_in[7];
    uint32_t write_address, write_data, read_address, timestamp_us;
    uint64_t timestamp_ns, in_keep;
    uint8_t in_data[64];

    uint8_t in_ready, cpu_valid, cpu_last, port_valid, port_last, port_user;
    uint8_t write_taken, write_done, write_response, read_taken, read_done, read_response, pad_out[4];
    uint32_t read_data, pad_last;
    uint64_t cpu_keep, port_keep;
    uint8_t cpu_data[64], port_data[64];
};

// Verilator keeps wires of up to 64 bits in integers and wider ones in arrays of 32 bits: the bytes of both
// are in order on a little-endian machine, which the Rust side checks.
template <class Wire> void put(Wire& wire, const void* from) { std::memcpy(&wire, from, sizeof(Wire)); }
template <class Wire> void get(void* to, const Wire& wire) { std::memcpy(to, &wire, sizeof(Wire)); }

}  // namespace

#define JOIN_NAMES(a, b, c) a##b##c
#define JOIN(a, b, c) JOIN_NAMES(a, b, c)
#define EXPORT(what) JOIN(bartizan_rtl_, MODEL_NAME, what)

extern "C" {

// The memory of a model that was not reset holds numbers drawn from `seed`.
void* EXPORT(_new)(uint32_t seed) {
    auto* context = new VerilatedContext;
    context->randReset(2);
    context->randSeed(static_cast<int>(seed & 0x7fffffff) | 1);
    return new MODEL(context, "top");
}

void EXPORT(_free)(void* handle) {
    auto* model = static_cast<MODEL*>(handle);
    auto* context = model->contextp();
    model->final();
    delete model;
    delete context;
}

// Drives the inputs, reads the outputs, and has the clock edge.
void EXPORT(_cycle)(void* handle, Wires* wires) {
    auto* m = static_cast<MODEL*>(handle);
    m->rst_ni = wires->reset_n;
    m->timestamp_us_i = wires->timestamp_us;
    m->timestamp_ns_i = wires->timestamp_ns;
    m->s_axis_tvalid_i = wires->in_valid;
    m->s_axis_tlast_i = wires->in_last;
    m->s_axis_tuser_i = wires->in_user;
    put(m->s_axis_tdata_i, wires->in_data);
    put(m->s_axis_tkeep_i, &wires->in_keep);
    m->m_cpu_axis_tready_i = wires->cpu_ready;
    m->m_port_axis_tready_i = wires->port_ready;
    m->s_axil_awvalid_i = wires->write_valid;
    m->s_axil_wvalid_i = wires->write_valid;
    m->s_axil_awaddr_i = wires->write_address;
    m->s_axil_wdata_i = wires->write_data;
    m->s_axil_wstrb_i = wires->write_strobes;
    m->s_axil_bready_i = 1;
    m->s_axil_arvalid_i = wires->read_valid;
    m->s_axil_araddr_i = wires->read_address;
    m->s_axil_rready_i = 1;
    m->clk_i = 0;
    m->eval();

    wires->in_ready = m->s_axis_tready_o;
    wires->cpu_valid = m->m_cpu_axis_tvalid_o;
    if (wires->cpu_valid) {
        wires->cpu_last = m->m_cpu_axis_tlast_o;
        wires->cpu_keep = m->m_cpu_axis_tkeep_o;
        get(wires->cpu_data, m->m_cpu_axis_tdata_o);
    }
    wires->port_valid = m->m_port_axis_tvalid_o;
    if (wires->port_valid) {
        wires->port_last = m->m_port_axis_tlast_o;
        wires->port_user = m->m_port_axis_tuser_o;
        wires->port_keep = m->m_port_axis_tkeep_o;
        get(wires->port_data, m->m_port_axis_tdata_o);
    }
    wires->write_taken = m->s_axil_awready_o;
    wires->write_done = m->s_axil_bvalid_o;
    wires->write_response = m->s_axil_bresp_o;
    wires->read_taken = m->s_axil_arready_o;
    wires->read_done = m->s_axil_rvalid_o;
    wires->read_response = m->s_axil_rresp_o;
    wires->read_data = m->s_axil_rdata_o;

    m->clk_i = 1;
    m->eval();
}

}  // extern "C"
