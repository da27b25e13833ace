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
  EXPECT(mlp_train_create(-1, &model) == MLP_TRAIN_BAD_ARGUMENT && model == NULL);
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
  EXPECT(mlp_train_step(model, images, labels, rates, 0, &loss) == MLP_TRAIN_BAD_ARGUMENT);
  EXPECT(strcmp(mlp_train_error(), "step: expected 1 or more, found 0") == 0);
  EXPECT(mlp_train_step(model, images, labels, rates, 1, &loss) == MLP_TRAIN_OK);
  EXPECT(loss == before); /* of before the update */
  EXPECT(mlp_train_forward(model, images, labels, &after) == MLP_TRAIN_OK);
  EXPECT(after < before);
  for (i = 2; i <= 20; ++i) EXPECT(mlp_train_step(model, images, labels, rates, i, NULL) == MLP_TRAIN_OK);
  EXPECT(mlp_train_evaluate(model, images, labels, &loss) == MLP_TRAIN_OK);
  EXPECT(loss < after);

  /* A step is forward, backward and update; what lies between them can be read and changed. */
  {
    mlp_train_model *apart = NULL, *whole = NULL;
    const mlp_train_tensor *gradients = NULL, *parameters = NULL, *same = NULL, *states = NULL, *results = NULL;
    size_t count = 0, parameter_count = 0, state_count = 0, result_count = 0, k, n;
    EXPECT(mlp_train_create(2, &apart) == MLP_TRAIN_OK && mlp_train_create(1, &whole) == MLP_TRAIN_OK);
    EXPECT(mlp_train_load(apart, "weights.safetensors") == MLP_TRAIN_OK);
    EXPECT(mlp_train_load(whole, "weights.safetensors") == MLP_TRAIN_OK);
    for (i = 1; i <= 3; ++i) {
      double forward_loss = -1, step_loss = -2;
      EXPECT(mlp_train_forward(apart, images, labels, &forward_loss) == MLP_TRAIN_OK);
      EXPECT(mlp_train_backward(apart, images, labels) == MLP_TRAIN_OK);
      EXPECT(mlp_train_update(apart, rates, i) == MLP_TRAIN_OK);
      EXPECT(mlp_train_step(whole, images, labels, rates, i, &step_loss) == MLP_TRAIN_OK);
      EXPECT(forward_loss == step_loss);
    }
    EXPECT(mlp_train_parameters(apart, &parameters, &parameter_count) == MLP_TRAIN_OK && parameter_count == 4);
    EXPECT(mlp_train_parameters(whole, &same, &count) == MLP_TRAIN_OK && count == 4);
    for (k = 0; k < count; ++k) {
      size_t bytes = sizeof(float);
      EXPECT(strcmp(parameters[k].path, same[k].path) == 0 && strcmp(same[k].dtype, "f32") == 0);
      for (n = 0; n < same[k].rank; ++n) bytes *= (size_t)same[k].shape[n];
      EXPECT(memcmp(parameters[k].data, same[k].data, bytes) == 0);
    }
    EXPECT(mlp_train_states(whole, &states, &state_count) == MLP_TRAIN_OK && state_count > 0);
    EXPECT(strchr(states[0].path, '-') != NULL);
    EXPECT(mlp_train_results(whole, &results, &result_count) == MLP_TRAIN_OK && result_count == 1);
    EXPECT(results[0].rank == 0);
    /* Without gradients and with nothing in its states the optimizer leaves the parameters as they are. */
    EXPECT(mlp_train_backward(apart, images, labels) == MLP_TRAIN_ERROR); /* the loop's has used up its forward */
    EXPECT(mlp_train_forward(apart, images, labels, NULL) == MLP_TRAIN_OK);
    EXPECT(mlp_train_backward(apart, images, labels) == MLP_TRAIN_OK);
    EXPECT(mlp_train_gradients(apart, &gradients, &count) == MLP_TRAIN_OK && count == 4);
    EXPECT(strcmp(gradients[0].path, parameters[0].path) == 0 && gradients[0].rank == 2);
    {
      const float before_update = *(const float*)parameters[0].data;
      int any = 0;
      for (k = 0; k < count; ++k) {
        size_t size = 1;
        for (n = 0; n < gradients[k].rank; ++n) size *= (size_t)gradients[k].shape[n];
        for (n = 0; n < size; ++n) any = any || ((float*)gradients[k].data)[n] != 0;
        memset(gradients[k].data, 0, size * sizeof(float));
      }
      EXPECT(any);
      EXPECT(mlp_train_states(apart, &states, &state_count) == MLP_TRAIN_OK);
      for (k = 0; k < state_count; ++k) {
        size_t size = 1;
        for (n = 0; n < states[k].rank; ++n) size *= (size_t)states[k].shape[n];
        memset(states[k].data, 0, size * sizeof(float));
      }
      EXPECT(mlp_train_update(apart, rates, 4) == MLP_TRAIN_OK);
      EXPECT(*(const float*)parameters[0].data == before_update);
    }
    EXPECT(mlp_train_backward(apart, NULL, labels) == MLP_TRAIN_BAD_ARGUMENT);
    EXPECT(strcmp(mlp_train_error(), "images is NULL") == 0);
    EXPECT(mlp_train_update(apart, NULL, 1) == MLP_TRAIN_BAD_ARGUMENT);
    EXPECT(mlp_train_update(apart, rates, 0) == MLP_TRAIN_BAD_ARGUMENT);
    EXPECT(mlp_train_gradients(apart, NULL, &count) == MLP_TRAIN_BAD_ARGUMENT);
    EXPECT(mlp_train_states(NULL, &states, &count) == MLP_TRAIN_BAD_ARGUMENT);
    mlp_train_destroy(whole);
    mlp_train_destroy(apart);
  }

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
