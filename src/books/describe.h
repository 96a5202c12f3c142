/* Gives a block a description or another tag. Owns no state: books/parts has the description, and
   the block's entry in the map has the tag. A row has the counters of a tag on a device. A cell has
   a thread's part of a row, and the orphan record has the cells for threads without a record. A
   shard is a part of the map. May use books/parts and books/blocks. Locks: those of the map. */
#ifndef MLI_BOOKS_DESCRIBE_H
#define MLI_BOOKS_DESCRIBE_H
#include "api/api.h"
#include "os/knobs.h"
#include "os/compiler.h"

#endif
