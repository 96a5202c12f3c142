/* A library that is opened, closed and opened again: tests/places.sh. */
const char plug_word[] = WORD; /* the build ids of two libraries differ */
void plug_run(void (*record)(void)) {
    record();
    __asm__ volatile(""); /* no tail call */
}
