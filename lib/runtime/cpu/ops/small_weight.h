// A vector weight (norm, bias, rotary frequencies) as floats: the mapped bytes when
// they are F32, as nearly always, else a decoded copy.
#pragma once

#include <vector>

#include "lib/formats/dtype.h"
#include "lib/formats/layout.h"
#include "lib/runtime/cpu/cpu_step.h"

namespace ktx::runtime {

class SmallWeight {
 public:
  SmallWeight() = default;
  // An absent weight gives an absent SmallWeight.
  static Result<SmallWeight> make(const BoundWeight& weight) {
    SmallWeight small;
    if (weight.matrices == 0) return small;
    if (weight.matrix.layout != Layout::Rows) return Error{"a vector weight that is not in rows"};
    small.bytes_ = weight.bytes();
    small.data_ = weight.f32();
    const DType dtype = weight.matrix.dtype;
    if (dtype == DType::F32) return small;
    if (dtype == DType::I32) return Error{"a vector weight of integers"};
    const int64_t elems = weight.matrices * weight.matrix.rows * weight.matrix.cols;
    small.copy_.resize(elems);
    dequantize_row(dtype, weight.matrix.data, elems, small.copy_.data());
    small.data_ = small.copy_.data();
    return small;
  }
  // Moving keeps the address of a vector's elements.
  SmallWeight(SmallWeight&&) = default;
  SmallWeight& operator=(SmallWeight&&) = default;

  const float* data() const { return data_; }  // null: absent
  int64_t bytes() const { return bytes_; }

 private:
  const float* data_ = nullptr;
  int64_t bytes_ = 0;
  std::vector<float> copy_;
};

}  // namespace ktx::runtime
