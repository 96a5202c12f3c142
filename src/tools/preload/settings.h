/* A part of preload.c, a library that is loaded into a program to record its heap: reads the
   variables of the environment, and says which have no effect. */

/* --------------------------------------------------------------------------- settings -- */

/* The variables that begin with MEMLORD_. */
static const struct {
    const char *name;   /* the name without MEMLORD_; a name that ends in _ stands for all names
                           that begin with it */
    unsigned long most; /* the largest number that the variable takes; 0 if it takes text, or is not
                           for this library */
} settings[] = {{"REPORT", 0},
                {"REPORT_ON", 0},
                {"SKIP", 0},
                {"SYMBOLS", 1},
                {"EXACT", 1},
                {"FOLD", 1},
                {"ARGUMENTS", 1},
                {"STACK_BYTES", ULONG_MAX},
                {"STACK_DEPTH", ULONG_MAX},
                {"EVENTS", ULONG_MAX},
                {"SNAPSHOTS", UINT32_MAX},
                {"SIGNAL", 64},
                {"EVERY", INT_MAX},
                {"DEBUG", 0}, /* this and the following names are for ledgers in the program, and
                                 for MemLord's tests */
                {"RETRY", 0},
                {"POLL_INTERVAL_MS", 0},
                {"APP_", 0},
                {"TORCH_", 0},
                {"TEST_", 0},
                {"BENCH_", 0},
                {"FUZZ_", 0}};
#define SETTINGS (sizeof settings / sizeof settings[0])
#define PREFIX "MEMLORD_"

/* Returns the index of the variable that a line of the environment sets, or SETTINGS if `settings`
   has no such variable. Requires: the line begins with PREFIX. */
static size_t setting_of(const char *line) {
    const char *name = line + sizeof PREFIX - 1;
    const size_t length = strcspn(name, "=");
    size_t i = 0;
    for (; i < SETTINGS; i++) {
        const size_t n = strlen(settings[i].name);
        if (n <= length && !strncmp(name, settings[i].name, n) &&
            (n == length || settings[i].name[n - 1] == '_'))
            break;
    }
    return i;
}

/* Reads a whole number without a sign. Returns 1 if the text is such a number, up to `most`. */
static int read_number(const char *text, unsigned long most, unsigned long *out) {
    char *end;
    *out = strtoul(text, &end, 10);
    return *text >= '0' && *text <= '9' && !*end && *out <= most && *out != ULONG_MAX;
}

/* Returns the number in a variable, or 0 if the variable is not set, or if its text is not a number
   that it takes. */
static unsigned long number_of(const char *name) {
    const char *text = getenv(name);
    const size_t i = setting_of(name);
    unsigned long n;
    return text && i < SETTINGS && read_number(text, settings[i].most, &n) ? n : 0;
}

static void say(const char *line); /* in descriptor.h */

/* Prints what is wrong with a variable of the environment. */
static void complain(const char *setting, const char *what) {
    char line[512]; /* a longer text is cut */
    (void)snprintf(line, sizeof line, "memlord: %.300s %s\n", setting, what);
    say(line);
}

static void complain_of_number(const char *setting, unsigned long most) {
    char what[80] = "has no effect: it takes a number without a unit";
    if (most < ULONG_MAX)
        (void)snprintf(what, sizeof what, "has no effect: it takes a number from 0 to %lu", most);
    complain(setting, what);
}

/* Says which variables of the environment have no effect. */
static void check_settings(void) {
    char **line = environ;
    for (; line && *line; line++) {
        const char *value = strchr(*line, '=');
        unsigned long n;
        size_t i;
        if (!value || strncmp(*line, PREFIX, sizeof PREFIX - 1)) continue;
        i = setting_of(*line);
        if (i == SETTINGS)
            complain(*line, "has no effect: there is no such variable");
        else if (settings[i].most && value[1] && !read_number(value + 1, settings[i].most, &n))
            complain_of_number(*line, settings[i].most);
    }
}
