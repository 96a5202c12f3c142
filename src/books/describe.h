/* Gives a block a description or another tag. Owns no state: books/parts has the description, and
   the block's entry in the map has the tag. Locks: those of the map. */
#ifndef MLI_BOOKS_DESCRIBE_H
#define MLI_BOOKS_DESCRIBE_H
#include "api/api.h"
#include "os/knobs.h"
#include "os/compiler.h"

#endif
