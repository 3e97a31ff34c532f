#include "lib/runtime/lora/lora_weights.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstring>

#include "kernels/matmul/panel16.h"
#include "lib/formats/layout_size.h"
#include "lib/support/strings.h"

namespace ktx::runtime {
namespace {

// Products of a stage run at once, each with a room of its own; a layer has no more of them.
constexpr int32_t kRooms = 16;
constexpr size_t kMostFaults = 8;  // listed per adapter

// Rows of a tensor that are rows of a weight.
struct TensorUse {
  uint32_t step = 0;
  size_t weight = 0;      // of the step
  int64_t first_row = 0;  // of the tensor
  int64_t rows = 0;
  int64_t first_column = 0;  // of what the product gives
  int64_t cols = 0;
};

using TensorUses = std::map<std::string, std::vector<TensorUse>, std::less<>>;

TensorUses uses_of_tensors(const program::Program& program) {
  TensorUses uses;
  for (uint32_t s = 0; s < program.steps.size(); ++s) {
    for (size_t w = 0; w < program.steps[s].weights.size(); ++w) {
      const program::Blob* blob = program.weight(program.steps[s], w);
      if (blob == nullptr) continue;
      int64_t column = 0;
      for (const TensorSlice& slice : blob->sources) {
        const int64_t rows =
            slice.row_count >= 0 ? slice.row_count : blob->rows * blob->matrices - column;
        uses[slice.tensor].push_back({s, w, slice.first_row, rows, column, blob->cols});
        column += rows;
      }
    }
  }
  return uses;
}

// A factor of the weight alone, which a step applies behind the product.
bool has_factor(const program::Program& program, const program::Step& product) {
  return program.weight(product, 0)->dtype == DType::NVFP4 &&
         std::ranges::any_of(program.steps, [&](const program::Step& step) {
           return step.op == StepOp::Scale && step.module == product.module;
         });
}

// Why a low-rank term cannot be added where the tensor is read; "": it can.
std::string refusal(const program::Program& program, const TensorUse& use) {
  const program::Step& step = program.steps[use.step];
  const std::string where = printable(step.module);
  if (step.op == StepOp::Embed) {
    return fmt::format("it is the token embedding ({}), for which low-rank terms are not supported",
                       where);
  }
  if (step.op != StepOp::Matmul || use.weight != 0) {
    const bool experts = program.weight(step, use.weight)->matrices > 1;
    return fmt::format(
        "{} reads it in a '{}' step, which takes no low-rank term (linear layers do){}", where,
        info(step.op).name, experts ? "; merge the adapter: ktx-compile --merge" : "");
  }
  if (step.device != "cpu") {
    return fmt::format(
        "{} is on {}, and adapters are computed on the CPU alone; compile the model with "
        "rules/cpu-only.yaml, or with a rule that places this module on the CPU, or merge the "
        "adapter (ktx-compile --merge)",
        where, printable(step.device));
  }
  if (has_factor(program, step)) {
    return fmt::format("{} has a factor of its NVFP4 weights, which is not supported", where);
  }
  return "";
}

// Shapes stand as in GGUF, columns first.
std::string shape_fault(const LoraPair& pair, std::span<const TensorUse> uses) {
  int64_t rows = 0;
  for (const TensorUse& use : uses) rows = std::max(rows, use.first_row + use.rows);
  const bool inputs =
      std::ranges::all_of(uses, [&](const TensorUse& use) { return use.cols == pair.a.cols; });
  if (inputs && pair.b.rows == rows && pair.matrices == 1) return "";
  const std::string stack = pair.matrices == 1 ? "" : fmt::format(" x {}", pair.matrices);
  return fmt::format("it is for a tensor of {} x {}{}, and the model's is {} x {}", pair.a.cols,
                     pair.b.rows, stack, uses[0].cols, rows);
}

std::string fault_of(const program::Program& program, const TensorUses& uses,
                     const LoraPair& pair) {
  const auto found = uses.find(pair.tensor);
  if (found == uses.end()) return "the model has no such tensor";
  for (const TensorUse& use : found->second) {
    if (std::string why = refusal(program, use); !why.empty()) return why;
  }
  return shape_fault(pair, found->second);
}

Status check_adapter(const plan::PlanView& plan, const TensorUses& uses,
                     const LoraAdapter& adapter) {
  const std::string& own = plan.facts.architecture;
  if (!adapter.architecture.empty() && adapter.architecture != own) {
    return Error{
        fmt::format("{}: the adapter is for a model of architecture '{}', this one is '{}'",
                    adapter.path, printable(adapter.architecture), printable(own))};
  }
  std::string text;
  size_t faults = 0;
  for (const LoraPair& pair : adapter.pairs) {
    const std::string fault = fault_of(*plan.program, uses, pair);
    if (fault.empty()) continue;
    if (++faults <= kMostFaults) text += fmt::format("\n  {}: {}", printable(pair.tensor), fault);
  }
  if (faults == 0) return {};
  if (faults > kMostFaults) text += fmt::format("\n  and {} more", faults - kMostFaults);
  return Error{fmt::format("{}: the adapter does not fit the plan of '{}' ({} of {} tensors):{}",
                           adapter.path, printable(plan.facts.name), faults, adapter.pairs.size(),
                           text)};
}

bool is_half(DType dtype) {
  return dtype == DType::F16 || dtype == DType::BF16;
}

// Rows of a matrix in a form that the kernels of low-rank terms take.
struct PlainRows {
  DType dtype;
  int64_t row_bytes;
  std::vector<std::byte> bytes;
};

// The half that a value may be: it is where value_of() gives the value again.
uint16_t half_bits(DType dtype, float value) {
  return dtype == DType::F16 ? float_to_half(value)
                             : static_cast<uint16_t>(std::bit_cast<uint32_t>(value) >> 16);
}
float value_of(DType dtype, uint16_t half) {
  return dtype == DType::F16 ? half_to_float(half)
                             : std::bit_cast<float>(static_cast<uint32_t>(half) << 16);
}

// Numbers in F32 as BF16 or F16 where each of them is one, bit for bit, as in adapters that were
// trained in half precision and saved as F32: half of the bytes to read for each token.
PlainRows narrowed(std::span<const std::byte> bytes, int64_t cols) {
  const size_t count = bytes.size() / sizeof(float);
  const auto value_at = [&](size_t i) {
    float value = 0;
    std::memcpy(&value, bytes.data() + i * sizeof value, sizeof value);
    return value;
  };
  for (const DType dtype : {DType::BF16, DType::F16}) {
    std::vector<std::byte> halves(count * sizeof(uint16_t));
    size_t same = 0;
    for (; same < count; ++same) {
      const float value = value_at(same);
      const uint16_t half = half_bits(dtype, value);
      const float back = value_of(dtype, half);
      if (std::bit_cast<uint32_t>(back) != std::bit_cast<uint32_t>(value)) break;
      std::memcpy(halves.data() + same * sizeof half, &half, sizeof half);
    }
    if (same == count) return {dtype, cols * 2, std::move(halves)};
  }
  return {DType::F32, cols * 4, {bytes.begin(), bytes.end()}};
}

PlainRows plain_rows(const LoraMatrix& matrix, int64_t first, int64_t rows) {
  const int64_t from = *row_bytes(matrix.dtype, matrix.cols);
  const std::span<const std::byte> own =
      matrix.bytes.subspan(static_cast<size_t>(first * from), static_cast<size_t>(rows * from));
  if (matrix.dtype == DType::F32) return narrowed(own, matrix.cols);
  if (is_half(matrix.dtype)) return {matrix.dtype, from, {own.begin(), own.end()}};
  std::vector<float> values(static_cast<size_t>(rows * matrix.cols));
  dequantize_row(matrix.dtype, own.data(), rows * matrix.cols, values.data());
  return narrowed(std::as_bytes(std::span(values)), matrix.cols);
}

// The rows as panels, behind `before` rows of zeros.
std::vector<std::byte> panels_of(const PlainRows& plain, int64_t rows, int64_t cols,
                                 int64_t before) {
  const int64_t all = stored_rows(Layout::Panel16, before + rows);
  std::vector<std::byte> out(static_cast<size_t>(all * plain.row_bytes));
  for (int64_t first = 0; first < all; first += kPanelRows) {
    const std::byte* panel[kPanelRows] = {};
    for (int64_t r = 0; r < kPanelRows; ++r) {
      const int64_t row = first + r - before;
      if (row >= 0 && row < rows) panel[r] = plain.bytes.data() + row * plain.row_bytes;
    }
    kernels::pack_panel16(plain.dtype, cols, panel, out.data() + first * plain.row_bytes);
  }
  return out;
}

}  // namespace

Result<LoraWeights> LoraWeights::make(
    const plan::PlanView& plan, std::span<const std::shared_ptr<const LoraAdapter>> adapters) {
  const TensorUses uses = uses_of_tensors(*plan.program);
  for (const auto& adapter : adapters) KTX_TRY(check_adapter(plan, uses, *adapter));
  LoraWeights lora;
  const auto keep = [&](std::vector<std::byte> bytes) {
    lora.weight_bytes_ += bytes.size();
    return lora.memory_.emplace_back(std::move(bytes)).data();
  };
  for (size_t i = 0; i < adapters.size(); ++i) {
    for (const LoraPair& pair : adapters[i]->pairs) {
      const int64_t rank = pair.a.rows;
      PlainRows a = plain_rows(pair.a, 0, rank);
      const kernels::WeightMatrix down{
          keep(std::move(a.bytes)), a.dtype, Layout::Rows, rank, pair.a.cols, a.row_bytes};
      std::map<uint32_t, int64_t> places;  // by step: a tensor in slices has one A x
      for (const TensorUse& use : uses.find(pair.tensor)->second) {
        const int64_t before = use.first_column % kPanelRows;
        const PlainRows b = plain_rows(pair.b, use.first_row, use.rows);
        const kernels::WeightMatrix up{keep(panels_of(b, use.rows, rank, before)),
                                       b.dtype,
                                       Layout::Panel16,
                                       before + use.rows,
                                       rank,
                                       b.row_bytes};
        LoraProduct& product = lora.products_[use.step];
        const auto [place, added] = places.try_emplace(use.step, product.low_stride);
        product.terms.push_back({static_cast<int32_t>(i), pair.scale, down, up,
                                 use.first_column - before, place->second, added});
        if (added) product.low_stride += rank;
      }
    }
  }
  int32_t number = 0;
  for (auto& [step, product] : lora.products_) {
    product.room = number++ % kRooms;
    lora.low_width_ = std::max(lora.low_width_, product.low_stride);
  }
  return lora;
}

uint64_t LoraWeights::room_bytes(int64_t step_tokens) const {
  const int64_t rooms = std::min<int64_t>(kRooms, std::ssize(products_));
  return static_cast<uint64_t>(rooms * step_tokens * low_width_) * sizeof(float);
}

Status LoraWeights::open(int64_t step_tokens) {
  rooms_ = KTX_TRY(Arena::allocate(room_bytes(step_tokens), "memory of adapters"));
  for (auto& [step, product] : products_) {
    product.low = reinterpret_cast<float*>(rooms_.data()) + product.room * step_tokens * low_width_;
    product.low_stride = low_width_;
  }
  return {};
}

const LoraProduct* LoraWeights::of_step(uint32_t step) const {
  const auto found = products_.find(step);
  return found == products_.end() ? nullptr : &found->second;
}

}  // namespace ktx::runtime
