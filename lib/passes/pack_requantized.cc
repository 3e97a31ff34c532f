#include "lib/passes/pack_requantized.h"

#include <algorithm>
#include <cmath>

#include "kernels/matmul/marlin_blob.h"
#include "kernels/matmul/marlin_layout.h"
#include "kernels/matmul/panel16.h"
#include "lib/formats/layout.h"
#include "lib/formats/quantize_row.h"

namespace ktx::passes {
namespace {

using Slices = std::span<const std::span<const std::byte>>;

class Packer {
 public:
  Packer(const plan::BlobRecord& blob, const RequantizedForm* form, std::vector<RowsOfTensor> from,
         Slices slices, std::shared_ptr<RequantizeError> error)
      : form_(form),
        dtype_(static_cast<DType>(blob.dtype)),
        layout_(static_cast<Layout>(blob.layout)),
        rows_(blob.rows),
        cols_(blob.cols),
        from_(std::move(from)),
        error_(std::move(error)) {
    int64_t row = 0;
    for (size_t i = 0; i < slices.size(); ++i) {
      begins_.push_back(row);
      row += static_cast<int64_t>(slices[i].size()) / *row_bytes(from_[i].dtype, cols_);
    }
  }

  // Rows of a matrix that are packed together; every matrix begins anew.
  int64_t unit_rows() const {
    return layout_ == Layout::Marlin ? kernels::kMarlinRows : (in_panels(layout_) ? kPanelRows : 1);
  }
  uint64_t unit_bytes() const {
    return static_cast<uint64_t>(*matrix_bytes(layout_, dtype_, unit_rows(), cols_));
  }

  void pack(Slices slices, uint64_t offset, std::span<std::byte> out) const {
    Sums sums;
    const int64_t units = (rows_ + unit_rows() - 1) / unit_rows();
    std::vector<float> x(static_cast<size_t>(cols_)), y(x.size());
    std::vector<std::byte> rows;
    for (uint64_t at = 0; at < out.size(); at += unit_bytes()) {
      const auto unit = static_cast<int64_t>((offset + at) / unit_bytes());
      const int64_t in_matrix = unit % units * unit_rows();
      const int64_t count = std::min(unit_rows(), rows_ - in_matrix);
      const auto row_size = static_cast<size_t>(*row_bytes(dtype_, cols_));
      rows.resize(static_cast<size_t>(count) * row_size);
      for (int64_t r = 0; r < count; ++r) {
        std::byte* row = rows.data() + static_cast<size_t>(r) * row_size;
        round_row(slices, unit / units * rows_ + in_matrix + r, x, row);
        dequantize_row(dtype_, row, cols_, y.data());
        sums.add(x, y);
      }
      pack_unit(count, rows, out.subspan(at, unit_bytes()));
    }
    const std::lock_guard lock(error_->mutex);
    error_->squares += sums.squares;
    error_->error_squares += sums.error_squares;
    error_->largest_error = std::max(error_->largest_error, sums.largest);
  }

 private:
  struct Sums {
    double squares = 0, error_squares = 0, largest = 0;
    // Eight sums side by side, so that no addition waits for the one before.
    void add(const std::vector<float>& x, const std::vector<float>& y) {
      constexpr size_t kLanes = 8;
      double square[kLanes] = {}, error_square[kLanes] = {}, most[kLanes] = {};
      for (size_t i = 0; i < x.size(); i += kLanes) {
        for (size_t l = 0; l < std::min(kLanes, x.size() - i); ++l) {
          const double weight = x[i + l], error = std::abs(weight - y[i + l]);
          square[l] += weight * weight;
          error_square[l] += error * error;
          most[l] = error > most[l] ? error : most[l];
        }
      }
      for (size_t l = 0; l < kLanes; ++l) {
        squares += square[l];
        error_squares += error_square[l];
        largest = std::max(largest, most[l]);
      }
    }
  };

  // Row `row` of the joined slices, each of its own format: what it is to be, in `x`, and rounded.
  void round_row(Slices slices, int64_t row, std::vector<float>& x, std::byte* out) const {
    const auto after = std::ranges::upper_bound(begins_, row);
    const auto i = static_cast<size_t>(after - begins_.begin() - 1);
    const RowsOfTensor& from = from_[i];
    const int64_t bytes = *row_bytes(from.dtype, cols_), in_slice = row - begins_[i];
    const std::byte* const before = slices[i].data() + in_slice * bytes;
    dequantize_row(from.dtype, before, cols_, x.data());
    if (from.merged != nullptr) {
      const int64_t elem = (from.first_row + in_slice) * cols_;
      from.merged->add_to(elem / from.row_elems, elem % from.row_elems, x);
    }
    if (form_ != nullptr) {
      requantize_row(*form_, x.data(), cols_, out);
    } else if (from.merged != nullptr) {
      quantize_row(dtype_, x.data(), cols_, before, out);
    } else {
      std::copy_n(before, bytes, out);
    }
  }

  // One unit is a blob of its own.
  void pack_unit(int64_t count, const std::vector<std::byte>& rows,
                 std::span<std::byte> out) const {
    const std::span<const std::byte> slice(rows);
    if (layout_ == Layout::Marlin) {
      kernels::pack_marlin_range({dtype_, count, cols_, 1}, {&slice, 1}, 0, out);
    } else if (in_panels(layout_)) {
      kernels::pack_panel16_range({dtype_, count, cols_, 1, layout_}, {&slice, 1}, 0, out);
    } else {
      std::copy(rows.begin(), rows.end(), out.begin());
    }
  }

  const RequantizedForm* form_;
  DType dtype_;
  Layout layout_;
  int64_t rows_, cols_;
  std::vector<RowsOfTensor> from_;  // by slice
  std::vector<int64_t> begins_;     // likewise: rows before it
  std::shared_ptr<RequantizeError> error_;
};

}  // namespace

double RequantizeError::relative_rms() const {
  return squares > 0 ? std::sqrt(error_squares / squares) : 0;
}

// Squares of floats do not overflow a double, and NaN and infinity stay in a sum.
bool RequantizeError::is_finite() const {
  return std::isfinite(squares) && std::isfinite(error_squares);
}

void pack_requantized(const plan::BlobRecord& blob, const RequantizedForm* form,
                      std::vector<RowsOfTensor> rows, std::shared_ptr<RequantizeError> error,
                      plan::BlobSource& source) {
  const auto packer =
      std::make_shared<const Packer>(blob, form, std::move(rows), source.slices, std::move(error));
  source.granule_bytes = packer->unit_bytes();
  source.pack = [packer](Slices slices, uint64_t offset, std::span<std::byte> out) {
    packer->pack(slices, offset, out);
  };
}

}  // namespace ktx::passes
