/* ------------------------- stop here if you only want the API ---------------------------- */

#if defined(MLI_READ_PREFIX)

/* ---------------------------------------------------------------------- >>prefix --
   The names of all public functions. */

#define MLI_PREFIXED(name) MLI_JOIN(MEMLORD_PREFIX, MLI_JOIN(_, name))
/* join: prefix */

#endif /* MLI_READ_PREFIX */
