// SPDX-License-Identifier: Apache-2.0
//! The logic as a model that Verilator made of `hw/rtl`, one clock cycle at a time.
//!
//! The models are C++ behind the functions of `cpp/shim.cpp`, which build.rs compiles once for each
//! [`Configuration`].

use core::ffi::c_void;
use core::marker::PhantomData;

/// The wires of a cycle: the inputs that a test drives, then the outputs of the model before the clock
/// edge. The shim has the same structure.
#[derive(Clone, Debug)]
#[repr(C)]
#[allow(missing_docs, reason = "the signals of bartizan_top, which says what they are")]
pub struct Wires {
    pub reset_n: u8,
    pub in_valid: u8,
    pub in_last: u8,
    pub in_user: u8,
    pub cpu_ready: u8,
    pub port_ready: u8,
    pub write_valid: u8,
    pub write_strobes: u8,
    pub read_valid: u8,
    pad_in: [u8; 7],
    pub write_address: u32,
    pub write_data: u32,
    pub read_address: u32,
    pub timestamp_us: u32,
    pub timestamp_ns: u64,
    pub in_keep: u64,
    pub in_data: [u8; 64],

    pub in_ready: u8,
    pub cpu_valid: u8,
    pub cpu_last: u8,
    pub port_valid: u8,
    pub port_last: u8,
    pub port_user: u8,
    pub write_taken: u8,
    pub write_done: u8,
    pub write_response: u8,
    pub read_taken: u8,
    pub read_done: u8,
    pub read_response: u8,
    pad_out: [u8; 4],
    pub read_data: u32,
    pad_last: u32,
    pub cpu_keep: u64,
    pub port_keep: u64,
    pub cpu_data: [u8; 64],
    pub port_data: [u8; 64],
}

impl Default for Wires {
    fn default() -> Self {
        Wires {
            reset_n: 0,
            in_valid: 0,
            in_last: 0,
            in_user: 0,
            cpu_ready: 0,
            port_ready: 0,
            write_valid: 0,
            write_strobes: 0xf,
            read_valid: 0,
            pad_in: [0; 7],
            write_address: 0,
            write_data: 0,
            read_address: 0,
            timestamp_us: 0,
            timestamp_ns: 0,
            in_keep: 0,
            in_data: [0; 64],
            in_ready: 0,
            cpu_valid: 0,
            cpu_last: 0,
            port_valid: 0,
            port_last: 0,
            port_user: 0,
            write_taken: 0,
            write_done: 0,
            write_response: 0,
            read_taken: 0,
            read_done: 0,
            read_response: 0,
            pad_out: [0; 4],
            read_data: 0,
            pad_last: 0,
            cpu_keep: 0,
            port_keep: 0,
            cpu_data: [0; 64],
            port_data: [0; 64],
        }
    }
}

/// The shim copies wires of several words as bytes.
const _: () = assert!(cfg!(target_endian = "little"), "the shim of the models is for little-endian machines");

macro_rules! configurations {
    ($($(#[doc = $doc:literal])+ $variant:ident $width:literal, $new:ident $free:ident $cycle:ident;)+) => {
        /// A configuration of the logic; build.rs has its parameters.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Configuration { $($(#[doc = $doc])+ $variant,)+ }

        unsafe extern "C" {
            $(
                fn $new(seed: u32) -> *mut c_void;
                fn $free(model: *mut c_void);
                fn $cycle(model: *mut c_void, wires: *mut Wires);
            )+
        }

        impl Configuration {
            /// Every configuration.
            pub const ALL: &'static [Configuration] = &[$(Configuration::$variant,)+];

            /// Bits of a beat.
            #[must_use]
            pub const fn width(self) -> usize {
                match self { $(Configuration::$variant => $width,)+ }
            }

            const fn functions(self) -> ModelFunctions {
                match self {
                    $(Configuration::$variant => ModelFunctions { new: $new, free: $free, cycle: $cycle },)+
                }
            }
        }
    };
}

struct ModelFunctions {
    new: unsafe extern "C" fn(u32) -> *mut c_void,
    free: unsafe extern "C" fn(*mut c_void),
    cycle: unsafe extern "C" fn(*mut c_void, *mut Wires),
}

configurations! {
    /// 64 bits, 128 entries, strides of 4 in LUT memory, both IP versions; 256 flows.
    Narrow 64, bartizan_rtl_narrow_new bartizan_rtl_narrow_free bartizan_rtl_narrow_cycle;
    /// 128 bits, 64 entries, strides of 9 in block memory, both IP versions; 4,096 flows.
    Middle 128, bartizan_rtl_middle_new bartizan_rtl_middle_free bartizan_rtl_middle_cycle;
    /// 512 bits, 128 entries, strides of 9 in block memory, IPv4; 256 flows.
    Wide 512, bartizan_rtl_wide_new bartizan_rtl_wide_free bartizan_rtl_wide_cycle;
}

/// A model. It belongs to one thread: Verilator's library has state of the thread that made a model.
pub struct LogicModel {
    handle: *mut c_void,
    functions: ModelFunctions,
    configuration: Configuration,
    thread: PhantomData<*mut ()>,
}

impl core::fmt::Debug for LogicModel {
    fn fmt(&self, formatter: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        formatter
            .debug_struct("LogicModel")
            .field("configuration", &self.configuration)
            .finish_non_exhaustive()
    }
}

impl LogicModel {
    /// Creates a model; registers without a reset hold numbers drawn from `seed`.
    #[must_use]
    pub fn new(configuration: Configuration, seed: u32) -> Self {
        let functions = configuration.functions();
        // SAFETY: the function takes any number, and returns a model that belongs to the caller.
        let handle = unsafe { (functions.new)(seed) };
        LogicModel { handle, functions, configuration, thread: PhantomData }
    }

    /// The configuration.
    #[must_use]
    pub const fn configuration(&self) -> Configuration {
        self.configuration
    }

    /// One clock cycle: the inputs of `wires` are driven, its outputs are those before the edge.
    pub fn cycle(&mut self, wires: &mut Wires) {
        // SAFETY: the handle is a model of this configuration, alive until `drop`, and `&mut self` keeps
        // others away. `wires` is a valid structure of the layout that the shim has (`repr(C)`, the same
        // fields), which it reads and writes only during the call.
        unsafe { (self.functions.cycle)(self.handle, wires) };
    }
}

impl Drop for LogicModel {
    fn drop(&mut self) {
        // SAFETY: the handle came from `new` of the same configuration and is not used afterwards.
        unsafe { (self.functions.free)(self.handle) };
    }
}
