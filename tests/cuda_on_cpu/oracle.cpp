#include "tests/cuda_on_cpu/oracle.h"

#include "kernels/reference/conv2d.h"
#include "kernels/reference/pool2d.h"

namespace graven::kernels::oracle {

void conv2d(const conv2d_config& c, double* y, const double* x, const double* w, const double* bias) { reference::conv2d(c, y, x, w, bias); }
void conv2d_backward_input(const conv2d_config& c, double* dx, const double* dy, const double* w) { reference::conv2d_backward_input(c, dx, dy, w); }
void conv2d_backward_weight(const conv2d_config& c, double* dw, double* db, const double* dy, const double* x) {
  reference::conv2d_backward_weight(c, dw, db, dy, x);
}
void max_pool2d(const pool2d_config& c, double* y, std::uint8_t* index, const double* x) { reference::max_pool2d(c, y, index, x); }
void max_pool2d_backward(const pool2d_config& c, double* dx, const double* dy, const std::uint8_t* index) {
  reference::max_pool2d_backward(c, dx, dy, index);
}
void avg_pool2d(const pool2d_config& c, double* y, const double* x) { reference::avg_pool2d(c, y, x); }
void avg_pool2d_backward(const pool2d_config& c, double* dx, const double* dy) { reference::avg_pool2d_backward(c, dx, dy); }

}  // namespace graven::kernels::oracle
