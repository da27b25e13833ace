/* A program in C that uses an emitted inference project, my_linear: linked with its library by tests/emit, run in its folder. */
#define _XOPEN_SOURCE 700
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>

#include "model.h"

#define EXPECT(condition)                                                                     \
  do {                                                                                        \
    if (!(condition)) {                                                                       \
      fprintf(stderr, "line %d: not so: %s (%s)\n", __LINE__, #condition, my_linear_error()); \
      return 1;                                                                               \
    }                                                                                         \
  } while (0)

/* What is not to be had while no further memory may be mapped. */
static int limit_memory(rlim_t limit) {
  struct rlimit memory;
  if (getrlimit(RLIMIT_AS, &memory) != 0) return -1;
  memory.rlim_cur = limit < memory.rlim_max ? limit : memory.rlim_max;
  return setrlimit(RLIMIT_AS, &memory);
}

int main(void) {
  enum { BATCH = 8, IN = 4, OUT = 3 };
  float x[BATCH * IN], y[BATCH * OUT], again[BATCH * OUT];
  my_linear_weights* weights = NULL;
  my_linear_model* model = NULL;
  int64_t i;
  EXPECT(my_linear_maximum_batch() == BATCH);

  EXPECT(my_linear_load(NULL, &weights) == MY_LINEAR_BAD_ARGUMENT);
  EXPECT(strcmp(my_linear_error(), "path is NULL") == 0);
  EXPECT(my_linear_load("absent.safetensors", &weights) == MY_LINEAR_ERROR);
  EXPECT(strstr(my_linear_error(), "absent.safetensors") != NULL && weights == NULL);
  EXPECT(limit_memory(1) == 0);
  EXPECT(my_linear_load("weights.safetensors", &weights) == MY_LINEAR_NO_MEMORY && weights == NULL);
  EXPECT(strcmp(my_linear_error(), "out of memory") == 0);
  EXPECT(limit_memory(RLIM_INFINITY) == 0);
  EXPECT(my_linear_load("weights.safetensors", &weights) == MY_LINEAR_OK);
  EXPECT(my_linear_create(weights, 1, NULL) == MY_LINEAR_BAD_ARGUMENT);
  EXPECT(my_linear_create(NULL, 1, &model) == MY_LINEAR_BAD_ARGUMENT);
  EXPECT(my_linear_load("weights.safetensors", NULL) == MY_LINEAR_BAD_ARGUMENT);
  EXPECT(strcmp(my_linear_error(), "weights is NULL") == 0);
  EXPECT(my_linear_create(weights, -1, &model) == MY_LINEAR_BAD_ARGUMENT && model == NULL);
  EXPECT(strcmp(my_linear_error(), "threads: expected 0 or more, found -1") == 0);
  EXPECT(my_linear_create(weights, 1, &model) == MY_LINEAR_OK);
  EXPECT(my_linear_use(NULL, weights) == MY_LINEAR_BAD_ARGUMENT);
  EXPECT(my_linear_use(model, NULL) == MY_LINEAR_BAD_ARGUMENT);
  my_linear_unload(weights); /* the model keeps them alive */

  for (i = 0; i < BATCH * IN; ++i) x[i] = (float)(i % 7) - 3;
  EXPECT(my_linear_forward(model, NULL, BATCH, y) == MY_LINEAR_BAD_ARGUMENT);
  EXPECT(my_linear_forward(NULL, x, BATCH, y) == MY_LINEAR_BAD_ARGUMENT);
  EXPECT(my_linear_forward(model, x, BATCH, NULL) == MY_LINEAR_BAD_ARGUMENT);
  EXPECT(my_linear_forward(model, x, my_linear_maximum_batch() + 1, y) == MY_LINEAR_BAD_ARGUMENT);
  EXPECT(strcmp(my_linear_error(), "batch: expected 1 to 8, found 9") == 0);
  EXPECT(my_linear_forward(model, x, 0, y) == MY_LINEAR_BAD_ARGUMENT);
  EXPECT(my_linear_forward(model, x, BATCH, y) == MY_LINEAR_OK);
  /* Fewer rows: the same numbers, and nothing behind them is written. */
  for (i = 0; i < BATCH * OUT; ++i) again[i] = -1000;
  EXPECT(my_linear_forward(model, x, 3, again) == MY_LINEAR_OK);
  EXPECT(memcmp(y, again, 3 * OUT * sizeof *y) == 0);
  EXPECT(again[3 * OUT] == -1000);
  EXPECT(y[0] != y[OUT] || y[1] != y[OUT + 1]);

  weights = NULL;
  EXPECT(my_linear_load("", &weights) == MY_LINEAR_OK); /* all zero */
  EXPECT(my_linear_use(model, weights) == MY_LINEAR_OK);
  my_linear_unload(weights);
  EXPECT(my_linear_forward(model, x, BATCH, y) == MY_LINEAR_OK);
  for (i = 0; i < BATCH * OUT; ++i) EXPECT(y[i] == 0);
  my_linear_destroy(model);
  puts("as it should be");
  return 0;
}
