/* Where NumPy's arrays live while a derivative is taken: pages of large ones are kept (memory.c) for the next, since
 * traces make and forget many of the same sizes. Included after NumPy's headers. */
#ifndef MERCER_ARRAY_MEMORY_H
#define MERCER_ARRAY_MEMORY_H

#include "mercer.h"

static PyDataMemAllocator *mercer_plain; /* NumPy's own: small arrays stay there */

static void *mercer_array_new(void *context, size_t bytes)
{
    (void)context;
    return bytes < MERCER_KEPT_FROM ? mercer_plain->malloc(mercer_plain->ctx, bytes) : mercer_take(bytes, 1);
}

static void *mercer_array_zeros(void *context, size_t n, size_t each)
{
    (void)context;
    return n * each < MERCER_KEPT_FROM ? mercer_plain->calloc(mercer_plain->ctx, n, each) : mercer_take_zeros(n * each);
}

/* Both sides make blocks that the C library can resize, and it is not told of which size a block was. */
static void *mercer_array_resize(void *context, void *memory, size_t bytes)
{
    (void)context;
    return bytes < MERCER_KEPT_FROM ? mercer_plain->realloc(mercer_plain->ctx, memory, bytes)
                                    : mercer_resize(memory, bytes);
}

static void mercer_array_free(void *context, void *memory, size_t bytes)
{
    (void)context;
    if (bytes < MERCER_KEPT_FROM)
        mercer_plain->free(mercer_plain->ctx, memory, bytes);
    else
        mercer_give(memory, bytes);
}

static PyDataMem_Handler mercer_array_memory = {
    "mercer",
    1,
    {NULL, mercer_array_new, mercer_array_zeros, mercer_array_resize, mercer_array_free},
};

/* NumPy's name for what it keeps handlers in. */
#define MERCER_HANDLER "mem_handler"

static PyObject *mercer_array_handler(void)
{
    PyDataMem_Handler *plain = PyCapsule_GetPointer(PyDataMem_DefaultHandler, MERCER_HANDLER);
    if (plain == NULL)
        return NULL;
    mercer_plain = &plain->allocator;
    return PyCapsule_New(&mercer_array_memory, MERCER_HANDLER, NULL);
}

/* Whether arrays are made by NumPy's own handler, and not by one that a user has set. */
static int mercer_is_plain(PyObject *handler)
{
    return handler == PyDataMem_DefaultHandler;
}

#endif
