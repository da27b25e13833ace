/* A program in C that trains with an emitted project, mlp_train, whose steps have parts and whose loss is scaled:
   linked with its library by tests/emit, run in its folder. */
#include <math.h>
#include <stdio.h>
#include <string.h>

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

/* The first element of the parameter of that number. */
static float first_of(mlp_train_model* model, size_t number) {
  const mlp_train_tensor* tensors = NULL;
  size_t count = 0;
  if (mlp_train_parameters(model, &tensors, &count) != MLP_TRAIN_OK || number >= count) return NAN;
  return *(const float*)tensors[number].data;
}

/* Where a state lies. */
static void* state_of(mlp_train_model* model, const char* path) {
  const mlp_train_tensor* tensors = NULL;
  size_t count = 0, i;
  if (mlp_train_states(model, &tensors, &count) != MLP_TRAIN_OK) return NULL;
  for (i = 0; i < count; ++i)
    if (strcmp(tensors[i].path, path) == 0) return tensors[i].data;
  return NULL;
}

int main(void) {
  const double rates[1] = {0.1};
  mlp_train_model *whole = NULL, *parts = NULL, *apart = NULL;
  const int64_t* skipped = NULL;
  const mlp_train_tensor *one = NULL, *other = NULL;
  size_t count = 0, k, n;
  double loss = -1, same = -2;
  float before;
  int64_t i, part;
  for (i = 0; i < 64; ++i) labels[i] = i % 10;
  for (i = 0; i < 64 * 28 * 28; ++i) images[i] = (float)(i % 11) / 10 + (float)(i / 784 % 10) / 10;
  EXPECT(mlp_train_create(2, &whole) == MLP_TRAIN_OK && mlp_train_create(1, &parts) == MLP_TRAIN_OK);
  EXPECT(mlp_train_create(1, &apart) == MLP_TRAIN_OK);
  EXPECT(mlp_train_load(whole, "weights.safetensors") == MLP_TRAIN_OK);
  EXPECT(mlp_train_load(parts, "weights.safetensors") == MLP_TRAIN_OK);
  EXPECT(mlp_train_load(apart, "weights.safetensors") == MLP_TRAIN_OK);

  EXPECT(mlp_train_set_part(NULL, 0, 1, 0) == MLP_TRAIN_BAD_ARGUMENT);
  EXPECT(mlp_train_set_part(parts, 2, 2, 0) == MLP_TRAIN_BAD_ARGUMENT);
  EXPECT(strstr(mlp_train_error(), "set_part: expected a part from 0") != NULL);

  /* The mean over two parts that are the same is what one has: their sums and halves are exact. */
  for (i = 1; i <= 3; ++i) {
    EXPECT(mlp_train_step(whole, images, labels, rates, i, &loss) == MLP_TRAIN_OK);
    before = first_of(parts, 0);
    for (part = 0; part < 2; ++part) {
      EXPECT(mlp_train_set_part(parts, part, 2, 0) == MLP_TRAIN_OK);
      EXPECT(mlp_train_step(parts, images, labels, rates, i, &same) == MLP_TRAIN_OK);
      EXPECT(same == loss);
      EXPECT((first_of(parts, 0) == before) == (part == 0)); /* the last part updates */
      /* The same in its phases. */
      EXPECT(mlp_train_set_part(apart, part, 2, 0) == MLP_TRAIN_OK);
      EXPECT(mlp_train_forward(apart, images, labels, &same) == MLP_TRAIN_OK);
      EXPECT(mlp_train_backward(apart, images, labels) == MLP_TRAIN_OK);
    }
    EXPECT(mlp_train_update(apart, rates, i) == MLP_TRAIN_OK);
  }
  EXPECT(mlp_train_parameters(whole, &one, &count) == MLP_TRAIN_OK && count == 4);
  for (n = 0; n < 2; ++n) {
    EXPECT(mlp_train_parameters(n == 0 ? parts : apart, &other, &count) == MLP_TRAIN_OK);
    for (k = 0; k < count; ++k) {
      size_t bytes = sizeof(float), d;
      for (d = 0; d < one[k].rank; ++d) bytes *= (size_t)one[k].shape[d];
      EXPECT(memcmp(one[k].data, other[k].data, bytes) == 0);
    }
  }

  /* A step whose gradients are not finite is skipped, and counted; what is counted and the scale are states. */
  EXPECT(mlp_train_skipped_steps(whole, &skipped, &count) == MLP_TRAIN_OK && count == 1 && skipped[0] == 0);
  EXPECT(mlp_train_skipped_steps(whole, NULL, &count) == MLP_TRAIN_BAD_ARGUMENT);
  EXPECT(*(float*)state_of(whole, "grad_scaler-scale") == 1024);
  before = first_of(whole, 0);
  images[5] = INFINITY;
  EXPECT(mlp_train_step(whole, images, labels, rates, 4, NULL) == MLP_TRAIN_OK);
  EXPECT(mlp_train_skipped_steps(whole, &skipped, &count) == MLP_TRAIN_OK && skipped[0] == 1);
  EXPECT(first_of(whole, 0) == before);
  EXPECT(*(float*)state_of(whole, "grad_scaler-scale") == 512);
  *(float*)state_of(whole, "grad_scaler-scale") = 64;
  *(int64_t*)state_of(whole, "grad_scaler-skipped.0") = 7;
  EXPECT(mlp_train_step(whole, images, labels, rates, 5, NULL) == MLP_TRAIN_OK);
  EXPECT(mlp_train_skipped_steps(whole, &skipped, &count) == MLP_TRAIN_OK && skipped[0] == 8);
  EXPECT(*(float*)state_of(whole, "grad_scaler-scale") == 32);
  mlp_train_destroy(apart);
  mlp_train_destroy(parts);
  mlp_train_destroy(whole);
  puts("as it should be");
  return 0;
}
