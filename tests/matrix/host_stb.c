/* A host with an stb_ds of its own, in the same program. */
#define STB_DS_IMPLEMENTATION
#include <stb/stb_ds.h>

int USE(void);

int USE(void) {
    int *numbers = NULL, i, sum = 0;
    struct {
        char *key;
        int value;
    } *words = NULL;
    for (i = 0; i < 1000; i++) arrput(numbers, i);
    for (i = 0; i < arrlen(numbers); i++) sum += numbers[i];
    shput(words, "word", 7);
    sum += shget(words, "word");
    arrfree(numbers);
    shfree(words);
    return sum - 499500 - 7;
}
