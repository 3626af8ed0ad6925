//! Loading libibverbs when verbs are first asked for, so that one program runs on
//! machines with RDMA and without.

use super::VerbsError;
use super::ffi::{
    AsyncEvent, CompletionChannel, CompletionQueue, Context, Device, DeviceAttributes, GidEntry,
    MemoryRegion, PortAttributes, ProtectionDomain, QueuePair, QueuePairAttributes, QueuePairInit,
};
use libc::{c_char, c_int, c_void};
use std::ffi::CStr;
use std::sync::OnceLock;

const NAME: &CStr = c"libibverbs.so.1";

/// The functions of libibverbs; those of the data path are reached through a
/// context ([`super::ffi::ContextOps`]). They have the names and the documentation of
/// libibverbs.
#[derive(Debug)]
pub(crate) struct Library {
    pub(crate) get_device_list: unsafe extern "C" fn(*mut c_int) -> *mut *mut Device,
    pub(crate) free_device_list: unsafe extern "C" fn(*mut *mut Device),
    pub(crate) get_device_name: unsafe extern "C" fn(*mut Device) -> *const c_char,
    pub(crate) open_device: unsafe extern "C" fn(*mut Device) -> *mut Context,
    pub(crate) close_device: unsafe extern "C" fn(*mut Context) -> c_int,
    pub(crate) query_device: unsafe extern "C" fn(*mut Context, *mut DeviceAttributes) -> c_int,
    pub(crate) query_port: unsafe extern "C" fn(*mut Context, u8, *mut PortAttributes) -> c_int,
    pub(crate) query_gid_ex:
        unsafe extern "C" fn(*mut Context, u32, u32, *mut GidEntry, u32, usize) -> c_int,
    pub(crate) alloc_pd: unsafe extern "C" fn(*mut Context) -> *mut ProtectionDomain,
    pub(crate) dealloc_pd: unsafe extern "C" fn(*mut ProtectionDomain) -> c_int,
    pub(crate) reg_mr:
        unsafe extern "C" fn(*mut ProtectionDomain, *mut c_void, usize, c_int) -> *mut MemoryRegion,
    pub(crate) dereg_mr: unsafe extern "C" fn(*mut MemoryRegion) -> c_int,
    pub(crate) create_comp_channel: unsafe extern "C" fn(*mut Context) -> *mut CompletionChannel,
    pub(crate) destroy_comp_channel: unsafe extern "C" fn(*mut CompletionChannel) -> c_int,
    pub(crate) create_cq: unsafe extern "C" fn(
        *mut Context,
        c_int,
        *mut c_void,
        *mut CompletionChannel,
        c_int,
    ) -> *mut CompletionQueue,
    pub(crate) destroy_cq: unsafe extern "C" fn(*mut CompletionQueue) -> c_int,
    pub(crate) get_cq_event: unsafe extern "C" fn(
        *mut CompletionChannel,
        *mut *mut CompletionQueue,
        *mut *mut c_void,
    ) -> c_int,
    pub(crate) ack_cq_events: unsafe extern "C" fn(*mut CompletionQueue, u32),
    pub(crate) create_qp:
        unsafe extern "C" fn(*mut ProtectionDomain, *mut QueuePairInit) -> *mut QueuePair,
    pub(crate) modify_qp:
        unsafe extern "C" fn(*mut QueuePair, *mut QueuePairAttributes, c_int) -> c_int,
    pub(crate) destroy_qp: unsafe extern "C" fn(*mut QueuePair) -> c_int,
    pub(crate) get_async_event: unsafe extern "C" fn(*mut Context, *mut AsyncEvent) -> c_int,
    pub(crate) ack_async_event: unsafe extern "C" fn(*mut AsyncEvent),
}

impl Library {
    /// The library, loaded once for the life of the process.
    pub(crate) fn get() -> Result<&'static Self, VerbsError> {
        static LIBRARY: OnceLock<Result<Library, VerbsError>> = OnceLock::new();
        LIBRARY.get_or_init(|| Self::load(NAME)).as_ref().map_err(Clone::clone)
    }

    fn load(name: &CStr) -> Result<Self, VerbsError> {
        // SAFETY: loading runs the library's initialisers, which are libibverbs' own.
        let handle = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
        if handle.is_null() {
            return Err(VerbsError::NoLibrary { reason: last_error() });
        }
        // Never closed: drivers keep state, and symbols are copied out.
        Ok(Self {
            get_device_list: symbol(handle, c"ibv_get_device_list", c"IBVERBS_1.1")?,
            free_device_list: symbol(handle, c"ibv_free_device_list", c"IBVERBS_1.1")?,
            get_device_name: symbol(handle, c"ibv_get_device_name", c"IBVERBS_1.1")?,
            open_device: symbol(handle, c"ibv_open_device", c"IBVERBS_1.1")?,
            close_device: symbol(handle, c"ibv_close_device", c"IBVERBS_1.1")?,
            query_device: symbol(handle, c"ibv_query_device", c"IBVERBS_1.1")?,
            query_port: symbol(handle, c"ibv_query_port", c"IBVERBS_1.1")?,
            query_gid_ex: symbol(handle, c"_ibv_query_gid_ex", c"IBVERBS_1.11")?,
            alloc_pd: symbol(handle, c"ibv_alloc_pd", c"IBVERBS_1.1")?,
            dealloc_pd: symbol(handle, c"ibv_dealloc_pd", c"IBVERBS_1.1")?,
            reg_mr: symbol(handle, c"ibv_reg_mr", c"IBVERBS_1.1")?,
            dereg_mr: symbol(handle, c"ibv_dereg_mr", c"IBVERBS_1.1")?,
            create_comp_channel: symbol(handle, c"ibv_create_comp_channel", c"IBVERBS_1.0")?,
            destroy_comp_channel: symbol(handle, c"ibv_destroy_comp_channel", c"IBVERBS_1.0")?,
            create_cq: symbol(handle, c"ibv_create_cq", c"IBVERBS_1.1")?,
            destroy_cq: symbol(handle, c"ibv_destroy_cq", c"IBVERBS_1.1")?,
            get_cq_event: symbol(handle, c"ibv_get_cq_event", c"IBVERBS_1.1")?,
            ack_cq_events: symbol(handle, c"ibv_ack_cq_events", c"IBVERBS_1.1")?,
            create_qp: symbol(handle, c"ibv_create_qp", c"IBVERBS_1.1")?,
            modify_qp: symbol(handle, c"ibv_modify_qp", c"IBVERBS_1.1")?,
            destroy_qp: symbol(handle, c"ibv_destroy_qp", c"IBVERBS_1.1")?,
            get_async_event: symbol(handle, c"ibv_get_async_event", c"IBVERBS_1.1")?,
            ack_async_event: symbol(handle, c"ibv_ack_async_event", c"IBVERBS_1.1")?,
        })
    }
}

/// A function of the library. Private to [`Library::load`], since the type that is
/// asked for has to be the one that the library's header declares.
fn symbol<F: Copy>(
    handle: *mut c_void,
    name: &'static CStr,
    version: &'static CStr,
) -> Result<F, VerbsError> {
    const { assert!(size_of::<F>() == size_of::<*mut c_void>(), "a function is an address") };
    // SAFETY: the handle is open and both names end with 0.
    let found = unsafe { libc::dlvsym(handle, name.as_ptr(), version.as_ptr()) };
    if found.is_null() {
        let (name, version) = (name.to_string_lossy(), version.to_string_lossy());
        return Err(VerbsError::OldLibrary { symbol: format!("{name}@{version}") });
    }
    // SAFETY: the symbol of this version is a function of the type of the field of
    // `Library` that it becomes.
    Ok(unsafe { std::mem::transmute_copy::<*mut c_void, F>(&found) })
}

fn last_error() -> String {
    // SAFETY: the text is the thread's own until its next call of dl functions.
    let text = unsafe { libc::dlerror() };
    if text.is_null() {
        return "no reason given".into();
    }
    // SAFETY: it ends with 0.
    unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_library_that_is_not_there_is_an_error_that_says_what_to_install() {
        let error = Library::load(c"libibverbs-that-nobody-has.so.1").unwrap_err().to_string();
        assert!(error.contains("libibverbs-that-nobody-has.so.1"), "{error}");
        assert!(error.contains("libibverbs1 and ibverbs-providers"), "{error}");
    }

    #[test]
    fn a_library_without_the_symbols_is_an_error_that_names_one() {
        let error = Library::load(c"libc.so.6").unwrap_err().to_string();
        assert!(error.contains("ibv_get_device_list@IBVERBS_1.1"), "{error}");
    }
}
