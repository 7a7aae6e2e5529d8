# Arrays whose pages are kept, within traced runs and sweeps. Part of _sweep.pyx.

cdef extern from "array_memory.h":
    object mercer_array_handler()
    bint mercer_is_plain(object handler) noexcept

cdef object _HANDLER = mercer_array_handler()


cdef object keep_pages():
    """Have this thread's arrays made of kept pages from now on; return what `restore_pages` wants."""
    if not mercer_is_plain(cnp.PyDataMem_GetHandler()):  # an outer derivative's, or the user's own
        return None
    return cnp.PyDataMem_SetHandler(_HANDLER)


cdef int restore_pages(object before) except -1:
    if before is not None:
        cnp.PyDataMem_SetHandler(before)
    return 0


def run(f, args):
    """Return f(*args)."""
    before = keep_pages()
    try:
        return f(*args)
    finally:
        restore_pages(before)
