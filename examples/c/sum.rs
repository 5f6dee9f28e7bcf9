//! Opens a model and sums an array of F32: sum FILE NAME. No crate is needed; a slice cannot outlive its file.
use std::ffi::{CStr, CString};
use std::os::raw::{c_char, c_int, c_void};

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

#[repr(C)]
struct Failure { size: usize, code: i32, kind: i32, number: i64, offset: i64, message: *const c_char, path: *const c_char }
#[repr(C)]
struct Entry {
    size: usize, name: *const c_char, dtype: *const c_char, shape: *const u64, strides: *const u64, data: *const c_void,
    name_length: u64, offset: u64, bytes: u64, item_bits: u32, rank: u32,
}
#[link(name = "onecopy")]
extern "C" {
    fn onecopy_open(path: *const c_char, options: *const c_void, file: *mut *mut c_void) -> c_int;
    fn onecopy_find_entry(file: *const c_void, name: *const c_char, entry: *mut Entry) -> c_int;
    fn onecopy_close(file: *mut c_void);
    fn onecopy_last_error() -> *const Failure;
}

struct File(*mut c_void);
unsafe impl Send for File {} // any thread may use it,
unsafe impl Sync for File {} // and many at once
impl Drop for File {
    fn drop(&mut self) { unsafe { onecopy_close(self.0) } }
}

fn checked(code: c_int) -> Result<()> {
    if code == 0 { return Ok(()) }
    Err(unsafe { CStr::from_ptr((*onecopy_last_error()).message) }.to_string_lossy().into())
}

impl File {
    fn open(path: &str) -> Result<File> {
        let mut file = std::ptr::null_mut();
        checked(unsafe { onecopy_open(CString::new(path)?.as_ptr(), std::ptr::null(), &mut file) }).map(|()| File(file))
    }
    fn floats(&self, name: &str) -> Result<&[f32]> {
        let mut entry = Entry { size: std::mem::size_of::<Entry>(), ..unsafe { std::mem::zeroed() } };
        checked(unsafe { onecopy_find_entry(self.0, CString::new(name)?.as_ptr(), &mut entry) })?;
        let (data, dtype) = (entry.data as *const f32, unsafe { CStr::from_ptr(entry.dtype) });
        if dtype.to_bytes() != b"F32" || data as usize % 4 != 0 { return Err(format!("{dtype:?}, not aligned F32").into()) }
        Ok(unsafe { std::slice::from_raw_parts(data, entry.bytes as usize / 4) })
    }
}

fn main() -> Result<()> {
    let words: Vec<String> = std::env::args().collect();
    let file = File::open(&words[1])?;
    let values = file.floats(&words[2])?;
    println!("{}: {} bytes, sum {}", words[2], 4 * values.len(), values.iter().map(|v| f64::from(*v)).sum::<f64>());
    Ok(())
}
