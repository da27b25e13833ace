/* A program in C that uses an emitted training project, mlp_train: linked with its library by tests/emit, run in its folder. */
#define _XOPEN_SOURCE 700
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>

#include "model.h"

#define EXPECT(condition)                                                                     \
  do {                                                                                        \
    if (!(condition)) {                                                                       \
      fprintf(stderr, "line %d: not so: %s (%s)\n", __LINE__, #condition, mlp_train_error()); \
      return 1;                                                                               \
    }                                                                                         \
  } while (0)

static float images[64 * 28 * 28];
static int64_t labels[64];

/* What is not to be had while no further memory may be mapped. */
static int limit_memory(rlim_t limit) {
  struct rlimit memory;
  if (getrlimit(RLIMIT_AS, &memory) != 0) return -1;
  memory.rlim_cur = limit < memory.rlim_max ? limit : memory.rlim_max;
  return setrlimit(RLIMIT_AS, &memory);
}

int main(void) {
  const double rates[1] = {0.1};
  double before = -1, loss = -1, after = -1, evaluated = -1;
  mlp_train_model *model = NULL, *other = NULL;
  int64_t i;
  for (i = 0; i < 64; ++i) labels[i] = i % 10;
  for (i = 0; i < 64 * 28 * 28; ++i) images[i] = (float)(i % 11) / 10 + (float)(i / 784 % 10) / 10;

  EXPECT(mlp_train_create(2, NULL) == MLP_TRAIN_BAD_ARGUMENT);
  EXPECT(mlp_train_create(-1, &model) == MLP_TRAIN_ERROR && model == NULL);
  EXPECT(strcmp(mlp_train_error(), "threads: expected 0 or more, found -1") == 0);
  EXPECT(limit_memory(1) == 0);
  EXPECT(mlp_train_create(2, &model) == MLP_TRAIN_NO_MEMORY && model == NULL);
  EXPECT(strcmp(mlp_train_error(), "out of memory") == 0);
  EXPECT(limit_memory(RLIM_INFINITY) == 0);
  EXPECT(mlp_train_create(2, &model) == MLP_TRAIN_OK);
  EXPECT(limit_memory(1) == 0);
  EXPECT(mlp_train_load(model, "weights.safetensors") == MLP_TRAIN_NO_MEMORY);
  EXPECT(limit_memory(RLIM_INFINITY) == 0);
  EXPECT(mlp_train_load(model, "absent.safetensors") == MLP_TRAIN_ERROR);
  EXPECT(strstr(mlp_train_error(), "absent.safetensors") != NULL);
  EXPECT(mlp_train_load(model, "weights.safetensors") == MLP_TRAIN_OK);

  EXPECT(mlp_train_forward(model, images, labels, &before) == MLP_TRAIN_OK && before > 0);
  EXPECT(mlp_train_step(model, images, NULL, rates, 1, &loss) == MLP_TRAIN_BAD_ARGUMENT);
  EXPECT(strcmp(mlp_train_error(), "labels is NULL") == 0);
  EXPECT(mlp_train_step(model, images, labels, NULL, 1, &loss) == MLP_TRAIN_BAD_ARGUMENT);
  EXPECT(mlp_train_step(model, images, labels, rates, 0, &loss) == MLP_TRAIN_ERROR);
  EXPECT(strcmp(mlp_train_error(), "step: expected 1 or more, found 0") == 0);
  EXPECT(mlp_train_step(model, images, labels, rates, 1, &loss) == MLP_TRAIN_OK);
  EXPECT(loss == before); /* of before the update */
  EXPECT(mlp_train_forward(model, images, labels, &after) == MLP_TRAIN_OK);
  EXPECT(after < before);
  for (i = 2; i <= 20; ++i) EXPECT(mlp_train_step(model, images, labels, rates, i, NULL) == MLP_TRAIN_OK);
  EXPECT(mlp_train_evaluate(model, images, labels, &loss) == MLP_TRAIN_OK);
  EXPECT(loss < after);

  /* What was learned is in the file that it saves. */
  EXPECT(mlp_train_save(model, "/nonexistent/trained.safetensors") == MLP_TRAIN_ERROR);
  EXPECT(mlp_train_save(model, "trained.safetensors") == MLP_TRAIN_OK);
  EXPECT(mlp_train_create(1, &other) == MLP_TRAIN_OK);
  EXPECT(mlp_train_load(other, "trained.safetensors") == MLP_TRAIN_OK);
  EXPECT(mlp_train_evaluate(other, images, labels, &evaluated) == MLP_TRAIN_OK);
  EXPECT(evaluated == loss);
  mlp_train_destroy(other);
  mlp_train_destroy(model);
  puts("as it should be");
  return 0;
}
