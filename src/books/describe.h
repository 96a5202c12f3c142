/* Gives a block a description or another tag. Owns no state: books/parts has the description, and
   the entry of the block has the tag. May use books/parts and books/blocks. Locks: those of the
   map. */
#ifndef MLI_BOOKS_DESCRIBE_H
#define MLI_BOOKS_DESCRIBE_H
#include "api/api.h"
#include "os/knobs.h"
#include "os/compiler.h"

#endif
