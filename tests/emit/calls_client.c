/* A program in C that makes every call of an emitted training project, calls_train, wrongly: with NULL, with numbers
   that cannot be, out of turn. Each is refused with its code and a message, and changes nothing. The project has a
   symbolic batch, dropout, and steps of parts. Linked with its library by tests/emit, run in its folder. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "model.h"

#define EXPECT(condition)                                                                       \
  do {                                                                                          \
    if (!(condition)) {                                                                         \
      fprintf(stderr, "line %d: not so: %s (%s)\n", __LINE__, #condition, calls_train_error()); \
      return 1;                                                                                 \
    }                                                                                           \
  } while (0)
#define ACCEPTS(call) EXPECT((call) == CALLS_TRAIN_OK)
#define REFUSES(call, code, text)                        \
  do {                                                   \
    EXPECT((call) == CALLS_TRAIN_##code);                \
    EXPECT(strstr(calls_train_error(), (text)) != NULL); \
  } while (0)

enum { BATCH = 8, FEATURES = 3 };
static float images[BATCH * FEATURES];
static int64_t labels[BATCH];

/* The parameters of both models are the same. */
static int same_parameters(calls_train_model* a, calls_train_model* b) {
  const calls_train_tensor *one = NULL, *other = NULL;
  size_t count = 0, k, d;
  if (calls_train_parameters(a, &one, &count) != CALLS_TRAIN_OK) return 0;
  if (calls_train_parameters(b, &other, &count) != CALLS_TRAIN_OK) return 0;
  for (k = 0; k < count; ++k) {
    size_t bytes = sizeof(float);
    for (d = 0; d < one[k].rank; ++d) bytes *= (size_t)one[k].shape[d];
    if (memcmp(one[k].data, other[k].data, bytes) != 0) return 0;
  }
  return 1;
}

int main(void) {
  const double rates[1] = {0.1}, no_rates[1] = {NAN};
  const calls_train_tensor* tensors = NULL;
  calls_train_model *model = NULL, *other = NULL;
  size_t count = 0;
  int64_t i;
  double loss = -1;
  for (i = 0; i < BATCH; ++i) labels[i] = i % 2;
  for (i = 0; i < BATCH * FEATURES; ++i) images[i] = (float)(i % 5) / 4;
  EXPECT(calls_train_maximum_batch() == BATCH);

  REFUSES(calls_train_create(1, NULL), BAD_ARGUMENT, "model is NULL");
  REFUSES(calls_train_create(-1, &model), BAD_ARGUMENT, "threads: expected 0 or more, found -1");
  EXPECT(model == NULL);
  calls_train_destroy(NULL);
  ACCEPTS(calls_train_create(1, &model));
  ACCEPTS(calls_train_create(1, &other));

  REFUSES(calls_train_load(NULL, "weights.safetensors"), BAD_ARGUMENT, "model is NULL");
  REFUSES(calls_train_load(model, NULL), BAD_ARGUMENT, "path is NULL");
  REFUSES(calls_train_load(model, "absent"), ERROR, "absent");
  REFUSES(calls_train_load(model, "graph.json"), ERROR, "graph.json");
  REFUSES(calls_train_save(NULL, "trained"), BAD_ARGUMENT, "model is NULL");
  REFUSES(calls_train_save(model, NULL), BAD_ARGUMENT, "path is NULL");
  REFUSES(calls_train_save(model, "/nonexistent/trained"), ERROR, "/nonexistent");
  ACCEPTS(calls_train_load(model, "weights.safetensors"));
  ACCEPTS(calls_train_load(other, "weights.safetensors"));

  REFUSES(calls_train_parameters(NULL, &tensors, &count), BAD_ARGUMENT, "model is NULL");
  REFUSES(calls_train_parameters(model, NULL, &count), BAD_ARGUMENT, "tensors is NULL");
  REFUSES(calls_train_parameters(model, &tensors, NULL), BAD_ARGUMENT, "count is NULL");
  REFUSES(calls_train_gradients(NULL, &tensors, &count), BAD_ARGUMENT, "model is NULL");
  REFUSES(calls_train_gradients(model, NULL, &count), BAD_ARGUMENT, "tensors is NULL");
  REFUSES(calls_train_gradients(model, &tensors, NULL), BAD_ARGUMENT, "count is NULL");
  REFUSES(calls_train_states(NULL, &tensors, &count), BAD_ARGUMENT, "model is NULL");
  REFUSES(calls_train_states(model, NULL, &count), BAD_ARGUMENT, "tensors is NULL");
  REFUSES(calls_train_states(model, &tensors, NULL), BAD_ARGUMENT, "count is NULL");
  REFUSES(calls_train_results(NULL, &tensors, &count), BAD_ARGUMENT, "model is NULL");
  REFUSES(calls_train_results(model, NULL, &count), BAD_ARGUMENT, "tensors is NULL");
  REFUSES(calls_train_results(model, &tensors, NULL), BAD_ARGUMENT, "count is NULL");

  REFUSES(calls_train_set_part(NULL, 0, 1, 0), BAD_ARGUMENT, "model is NULL");
  REFUSES(calls_train_set_part(model, 2, 2, 0), BAD_ARGUMENT, "set_part: expected a part from 0");
  REFUSES(calls_train_set_part(model, -1, 2, 0), BAD_ARGUMENT, "set_part: expected a part from 0");
  REFUSES(calls_train_set_part(model, 0, 0, 0), BAD_ARGUMENT, "set_part: expected a part from 0");
  REFUSES(calls_train_set_part(model, 0, 1, -1), BAD_ARGUMENT, "found 0, 1, -1");

  REFUSES(calls_train_step(NULL, images, labels, BATCH, rates, 1, 0, &loss), BAD_ARGUMENT, "model is NULL");
  REFUSES(calls_train_step(model, NULL, labels, BATCH, rates, 1, 0, &loss), BAD_ARGUMENT, "images is NULL");
  REFUSES(calls_train_step(model, images, NULL, BATCH, rates, 1, 0, &loss), BAD_ARGUMENT, "labels is NULL");
  REFUSES(calls_train_step(model, images, labels, 0, rates, 1, 0, &loss), BAD_ARGUMENT, "batch: expected 1 to 8");
  REFUSES(calls_train_step(model, images, labels, 9, rates, 1, 0, &loss), BAD_ARGUMENT, "to 8, found 9");
  REFUSES(calls_train_step(model, images, labels, -1, rates, 1, 0, &loss), BAD_ARGUMENT, "to 8, found -1");
  REFUSES(calls_train_step(model, images, labels, BATCH, NULL, 1, 0, &loss), BAD_ARGUMENT, "learning_rates is NULL");
  REFUSES(calls_train_step(model, images, labels, BATCH, rates, 0, 0, &loss), BAD_ARGUMENT,
          "step: expected 1 or more, found 0");
  REFUSES(calls_train_forward(NULL, images, labels, BATCH, 1, 0, &loss), BAD_ARGUMENT, "model is NULL");
  REFUSES(calls_train_forward(model, NULL, labels, BATCH, 1, 0, &loss), BAD_ARGUMENT, "images is NULL");
  REFUSES(calls_train_forward(model, images, NULL, BATCH, 1, 0, &loss), BAD_ARGUMENT, "labels is NULL");
  REFUSES(calls_train_forward(model, images, labels, 9, 1, 0, &loss), BAD_ARGUMENT, "to 8, found 9");
  REFUSES(calls_train_backward(NULL, images, labels, BATCH, 1, 0), BAD_ARGUMENT, "model is NULL");
  REFUSES(calls_train_backward(model, NULL, labels, BATCH, 1, 0), BAD_ARGUMENT, "images is NULL");
  REFUSES(calls_train_backward(model, images, NULL, BATCH, 1, 0), BAD_ARGUMENT, "labels is NULL");
  REFUSES(calls_train_backward(model, images, labels, 9, 1, 0), BAD_ARGUMENT, "to 8, found 9");
  REFUSES(calls_train_update(NULL, rates, 1), BAD_ARGUMENT, "model is NULL");
  REFUSES(calls_train_update(model, NULL, 1), BAD_ARGUMENT, "learning_rates is NULL");
  REFUSES(calls_train_update(model, rates, 0), BAD_ARGUMENT, "step: expected 1 or more, found 0");
  REFUSES(calls_train_update(model, no_rates, 1), BAD_ARGUMENT,
          "learning_rates: expected numbers from 0 to 1e+30, found nan");
  REFUSES(calls_train_evaluate(NULL, images, labels, BATCH, &loss), BAD_ARGUMENT, "model is NULL");
  REFUSES(calls_train_evaluate(model, NULL, labels, BATCH, &loss), BAD_ARGUMENT, "images is NULL");
  REFUSES(calls_train_evaluate(model, images, NULL, BATCH, &loss), BAD_ARGUMENT, "labels is NULL");
  REFUSES(calls_train_evaluate(model, images, labels, 0, &loss), BAD_ARGUMENT, "batch: expected 1 to 8, found 0");
  EXPECT(loss == -1 && same_parameters(model, other));

  /* A step begins with part 0, and goes on with the next one, of as many. */
  ACCEPTS(calls_train_set_part(model, 1, 3, 0));
  REFUSES(calls_train_step(model, images, labels, BATCH, rates, 1, 0, NULL), ERROR,
          "part: expected 0, with which a step begins, found 1 of 3");
  ACCEPTS(calls_train_set_part(model, 0, 3, 0));
  ACCEPTS(calls_train_step(model, images, labels, BATCH, rates, 1, 0, NULL));
  ACCEPTS(calls_train_set_part(model, 2, 3, 0));
  REFUSES(calls_train_step(model, images, labels, BATCH, rates, 1, 0, NULL), ERROR, "begins, or 1 of 3, found 2 of 3");
  ACCEPTS(calls_train_set_part(model, 1, 2, 0));
  REFUSES(calls_train_step(model, images, labels, BATCH, rates, 1, 0, NULL), ERROR, "begins, or 1 of 3, found 1 of 2");
  REFUSES(calls_train_update(model, rates, 1), ERROR,
          "update: expected behind the last of the step's 3 parts, found behind 1");
  EXPECT(same_parameters(model, other));
  for (i = 1; i < 3; ++i) {
    ACCEPTS(calls_train_set_part(model, i, 3, 0));
    ACCEPTS(calls_train_step(model, images, labels, BATCH, rates, 1, 0, NULL));
  }
  REFUSES(calls_train_step(model, images, labels, BATCH, rates, 2, 0, NULL), ERROR, "begins, found 2 of 3");
  /* What was refused has left no trace. */
  for (i = 0; i < 3; ++i) {
    ACCEPTS(calls_train_set_part(other, i, 3, 0));
    ACCEPTS(calls_train_step(other, images, labels, BATCH, rates, 1, 0, NULL));
  }
  EXPECT(same_parameters(model, other));

  /* Backward stands behind a forward of the same sizes, step and seed, which draws the same random numbers. */
  ACCEPTS(calls_train_set_part(model, 0, 1, 0));
  REFUSES(calls_train_backward(model, images, labels, BATCH, 2, 0), ERROR, "backward: expected behind a forward phase");
  ACCEPTS(calls_train_forward(model, images, labels, BATCH, 2, 5, NULL));
  ACCEPTS(calls_train_evaluate(model, images, labels, BATCH, NULL));
  REFUSES(calls_train_backward(model, images, labels, BATCH, 2, 5), ERROR, "no step, update or evaluation between");
  ACCEPTS(calls_train_forward(model, images, labels, BATCH, 2, 5, NULL));
  REFUSES(calls_train_backward(model, images, labels, 4, 2, 5), BAD_ARGUMENT, "forward phase, 8 2 5, found 4 2 5");
  REFUSES(calls_train_backward(model, images, labels, BATCH, 3, 5), BAD_ARGUMENT, "found 8 3 5");
  REFUSES(calls_train_backward(model, images, labels, BATCH, 2, 6), BAD_ARGUMENT, "found 8 2 6");
  ACCEPTS(calls_train_backward(model, images, labels, BATCH, 2, 5));
  REFUSES(calls_train_backward(model, images, labels, BATCH, 2, 5), ERROR, "backward: expected behind a forward phase");
  ACCEPTS(calls_train_update(model, rates, 2));
  ACCEPTS(calls_train_set_part(other, 0, 1, 0));
  ACCEPTS(calls_train_step(other, images, labels, BATCH, rates, 2, 5, NULL));
  EXPECT(same_parameters(model, other));
  calls_train_destroy(other);
  calls_train_destroy(model);
  puts("as it should be");
  return 0;
}
