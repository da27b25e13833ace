/* A program in C: its project has the library as a target, of a subdirectory or installed. */
#include <my_linear/model.h>
#include <stdio.h>

int main(int argc, char** argv) {
  float x[4] = {1, 2, 3, 4}, y[3] = {0, 0, 0};
  my_linear_weights* weights = NULL;
  my_linear_model* model = NULL;
  if (my_linear_load(argc > 1 ? argv[1] : "", &weights) || my_linear_create(weights, 2, &model) || my_linear_forward(model, x, 1, y)) {
    fprintf(stderr, "%s\n", my_linear_error());
    return 1;
  }
  my_linear_destroy(model);
  my_linear_unload(weights);
  printf("%g %g %g\n", (double)y[0], (double)y[1], (double)y[2]);
  return 0;
}
