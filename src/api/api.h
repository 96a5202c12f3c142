#ifndef MEMLORD_H
#define MEMLORD_H

#include "api/setup.h"
#include "api/ledger.h"
#include "api/books.h"
#include "api/services.h"
#include "api/reports.h"
#include "api/support.h"
#include "api/macros.h"
#include "api/cpp.h"

#endif /* MEMLORD_H */
