#include "base/ledger.h"

MLI_VARIABLE_HERE(mli_process_state mli_process)
MLI_VARIABLE_HERE(MEMLORD_THREAD_LOCAL mli_self_state mli_self)
