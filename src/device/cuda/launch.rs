//! The one way to launch a kernel: a tuple of arguments in the kernel's order, a grid, and an error that carries the
//! kernel's name.

use cudarc::driver::{result, sys};

use super::kernels::Kernel;
use super::library::said;
use super::tensor::{Expect, Pointer, Store};
use super::{Cuda, Work};
use crate::error::{Error, Result};

/// Threads of a block of [`Grid::elements`].
pub const THREADS: usize = 256;
/// Most arguments of a kernel.
const MOST: usize = 24;
/// Dynamic shared memory that needs no permission, in bytes.
const PLAIN_SHARED: usize = 48 << 10;

/// Blocks, threads and shared memory of a launch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Grid {
    /// Blocks by axis.
    pub blocks: [usize; 3],
    /// Threads of a block by axis.
    pub threads: [usize; 3],
    /// Dynamic shared memory in bytes.
    pub shared: usize,
}

impl Grid {
    /// One thread for each of `n` elements, [`THREADS`] a block.
    pub fn elements(n: usize) -> Self {
        Grid::new([n.div_ceil(THREADS), 1, 1], THREADS)
    }

    /// These blocks of `threads` threads in a line.
    pub fn new(blocks: [usize; 3], threads: usize) -> Self {
        Grid { blocks, threads: [threads, 1, 1], shared: 0 }
    }

    /// With blocks of this shape.
    pub fn block(self, threads: [usize; 3]) -> Self {
        Grid { threads, ..self }
    }

    /// With dynamic shared memory.
    pub fn shared(self, bytes: usize) -> Self {
        Grid { shared: bytes, ..self }
    }

    fn axes(of: [usize; 3]) -> Option<(u32, u32, u32)> {
        let [x, y, z] = of.map(|n| u32::try_from(n).ok());
        Some((x?, y?, z?))
    }
}

/// A size as the kernel's `int`.
#[derive(Debug, Clone, Copy)]
pub struct Int(usize);

/// A size as the kernel's `int`.
pub fn int(n: usize) -> Int {
    Int(n)
}

/// Arguments of a launch, each in its own 8 bytes, as the driver reads them.
pub struct Arguments {
    store: Store,
    slots: [u64; MOST],
    n: usize,
    /// What is wrong with them, and the argument's number from 1.
    wrong: Option<(usize, String)>,
}

impl Arguments {
    fn push(&mut self, bits: u64) {
        self.slots[self.n] = bits;
        self.n += 1;
    }

    fn refuse(&mut self, why: String) {
        let at = self.n + 1;
        self.wrong.get_or_insert((at, why));
    }
}

/// Something that a kernel takes.
pub trait Argument {
    /// Appends itself.
    fn put(self, to: &mut Arguments);
}

impl Argument for Pointer {
    fn put(self, to: &mut Arguments) {
        let want = match self.expect {
            Expect::Full => Some(Store::F32),
            Expect::Small => Some(to.store),
            Expect::Bytes => None,
        };
        if let Some(want) = want.filter(|&w| self.address != 0 && w != self.store) {
            to.refuse(format!("is stored as {}, expected {}", self.store.name(), want.name()));
        }
        to.push(self.address);
    }
}
impl Argument for Int {
    fn put(self, to: &mut Arguments) {
        match i32::try_from(self.0) {
            Ok(n) => to.push(u64::from(n.cast_unsigned())),
            Err(_) => {
                to.refuse(format!("is {}, at most {} fits", self.0, i32::MAX));
                to.push(0);
            }
        }
    }
}
impl Argument for f32 {
    fn put(self, to: &mut Arguments) {
        to.push(u64::from(self.to_bits()));
    }
}
impl Argument for f64 {
    fn put(self, to: &mut Arguments) {
        to.push(self.to_bits());
    }
}
impl Argument for u64 {
    fn put(self, to: &mut Arguments) {
        to.push(self);
    }
}

/// A tuple of [`Argument`]s.
pub trait ArgumentTuple {
    /// Appends all.
    fn put_all(self, to: &mut Arguments);
}

macro_rules! tuples {
    ($($name:ident)*) => { tuples!(@ [] $($name)*); };
    (@ [$($done:ident)*]) => {};
    (@ [$($done:ident)*] $next:ident $($rest:ident)*) => {
        impl<$($done: Argument,)* $next: Argument> ArgumentTuple for ($($done,)* $next,) {
            #[allow(non_snake_case)] // each letter is a type and its value
            fn put_all(self, to: &mut Arguments) {
                let ($($done,)* $next,) = self;
                $($done.put(to);)*
                $next.put(to);
            }
        }
        tuples!(@ [$($done)* $next] $($rest)*);
    };
}
tuples!(A B C D E F G H I J K L M N O P Q R S T U V W X);

impl Cuda {
    /// Launches `kernel` of the module stored as `store`. A grid with an empty axis launches nothing.
    ///
    /// # Errors
    /// `Kernel` naming the kernel: it does not compile, an argument has the wrong storage, the driver refuses.
    ///
    /// # Safety
    /// `arguments` are the kernel's, in its order and number, and every range that it touches lies inside its buffer.
    pub(crate) unsafe fn launch(
        &self,
        kernel: Kernel,
        store: Store,
        grid: Grid,
        arguments: impl ArgumentTuple,
    ) -> Result<()> {
        let core = &self.inner.core;
        core.enter()?;
        let mut list = Arguments { store, slots: [0; MOST], n: 0, wrong: None };
        arguments.put_all(&mut list);
        let failed = |problem: String| Error::Kernel { kernel: kernel.name.into(), problem };
        if let Some((at, why)) = list.wrong {
            return Err(failed(format!("argument {at} {why}")));
        }
        if grid.blocks.contains(&0) || grid.threads.contains(&0) {
            return Ok(());
        }
        let (Some(blocks), Some(threads)) = (Grid::axes(grid.blocks), Grid::axes(grid.threads)) else {
            return Err(failed(format!("the grid {:?} of {:?} threads is too large", grid.blocks, grid.threads)));
        };
        // kernels count the threads of the first axis in an `int`
        if grid.blocks[0].saturating_mul(grid.threads[0]) > i32::MAX as usize {
            return Err(failed(format!(
                "{} blocks of {} threads are more than an int",
                grid.blocks[0], grid.threads[0]
            )));
        }
        let function = self.inner.modules.function(core, kernel, store)?;
        let shared = u32::try_from(grid.shared).unwrap_or(u32::MAX);
        if grid.shared > PLAIN_SHARED {
            let attribute = sys::CUfunction_attribute::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
            let bytes = i32::try_from(grid.shared).unwrap_or(i32::MAX);
            // SAFETY: the function belongs to a module that lives as long as `self`.
            unsafe { result::function::set_function_attribute(function, attribute, bytes) }
                .map_err(|e| failed(format!("{bytes} bytes of shared memory: {}", said(e))))?;
        }
        let mut pointers = [std::ptr::null_mut(); MOST];
        for (p, slot) in pointers.iter_mut().zip(&mut list.slots) {
            *p = std::ptr::from_mut(slot).cast();
        }
        core.count(|c| &c.kernels);
        // SAFETY: the caller's promise; the driver reads the arguments before it returns.
        unsafe { result::launch_kernel(function, blocks, threads, shared, core.raw_stream(), &mut pointers[..list.n]) }
            .map_err(|e| {
                failed(format!("launching {:?} blocks of {:?} threads: {}", grid.blocks, grid.threads, said(e)))
            })
    }
}

impl Work<'_> {
    /// `float*` to the elements from `at`; `len` of them lie inside.
    pub(crate) fn part(&self, at: usize, len: usize) -> Pointer {
        debug_assert!(at + len <= self.len);
        Pointer { address: self.address + 4 * at as u64, store: Store::F32, expect: Expect::Full }
    }

    /// As [`Work::part`], for numbers stored as `store`; `at` counts floats, so that parts stay aligned.
    pub(crate) fn part_as(&self, at: usize, len: usize, store: Store) -> Pointer {
        debug_assert!(4 * at + len * store.bytes() <= 4 * self.len);
        let expect = if store == Store::F32 { Expect::Full } else { Expect::Small };
        Pointer { address: self.address + 4 * at as u64, store, expect }
    }
}
