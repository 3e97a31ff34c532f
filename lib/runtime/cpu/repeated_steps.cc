#include "lib/runtime/cpu/repeated_steps.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "lib/formats/act_q8.h"
#include "lib/formats/dtype.h"
#include "lib/ops/value_row.h"
#include "lib/runtime/cpu/executor.h"

namespace ktx::runtime {
namespace {

// Memory that a step writes, and how numbers stand in it.
struct Written {
  enum class Form { F32, I32, Q8, BF16, CacheF16, CacheQ8 } form;
  std::byte* data;
  uint64_t bytes;
  int64_t columns;  // Q8: of a row, which the bytes are
};

std::vector<float> decoded_q8(std::span<const std::byte> row, int64_t columns) {
  std::vector<float> out(static_cast<size_t>(columns));
  const auto* const codes = reinterpret_cast<const int8_t*>(row.data());
  for (int64_t i = 0; i < columns; ++i) {
    float scale;
    std::memcpy(&scale, row.data() + act_q8_scale_offset(columns) + i / kActQ8Group * 4, 4);
    out[static_cast<size_t>(i)] = scale * codes[i];
  }
  return out;
}

std::vector<float> decoded(DType dtype, std::span<const std::byte> bytes) {
  const int64_t block_bytes = info(dtype).block_bytes, block_elems = info(dtype).block_elems;
  const int64_t elems = std::ssize(bytes) / block_bytes * block_elems;
  std::vector<float> out(static_cast<size_t>(elems));
  dequantize_row(dtype, bytes.data(), elems, out.data());
  return out;
}

std::vector<float> numbers(const Written& written, std::span<const std::byte> bytes) {
  using Form = Written::Form;
  switch (written.form) {
    case Form::F32:
      return decoded(DType::F32, bytes);
    case Form::Q8:
      return decoded_q8(bytes, written.columns);
    case Form::BF16:
      return decoded(DType::BF16, bytes);
    case Form::CacheF16:
      return decoded(DType::F16, bytes);
    case Form::CacheQ8:
      return decoded(DType::Q8_0, bytes);
    case Form::I32:
      break;
  }
  return {};
}

// Sums over all that a step writes.
struct Distance {
  double of_difference = 0, of_scalar = 0;  // squares of floats
  double unequal = 0, compared = 0;         // of other numbers

  void add(const Written& written, std::span<const std::byte> fast,
           std::span<const std::byte> scalar) {
    if (std::ranges::equal(fast, scalar) && written.form != Written::Form::F32) {
      compared += 1;
      return;
    }
    const std::vector<float> a = numbers(written, fast), b = numbers(written, scalar);
    if (a.empty()) {
      for (size_t i = 0; i < fast.size(); ++i) unequal += fast[i] != scalar[i];
      compared += static_cast<double>(fast.size());
      return;
    }
    for (size_t i = 0; i < a.size(); ++i) {
      if (std::isnan(a[i]) && std::isnan(b[i])) continue;
      if (a[i] == b[i] && std::isinf(a[i])) continue;
      const double difference = double{a[i]} - b[i];
      of_difference += std::isfinite(difference) ? difference * difference : INFINITY;
      of_scalar += double{b[i]} * b[i];
    }
  }

  double value() const {
    const double floats = of_difference == 0 ? 0
                          : of_scalar == 0   ? INFINITY
                                             : std::sqrt(of_difference / of_scalar);
    return std::max(std::isnan(floats) ? INFINITY : floats, compared > 0 ? unequal / compared : 0);
  }
};

Written::Form form_of(ValueType type) {
  switch (type) {
    case ValueType::F32:
      return Written::Form::F32;
    case ValueType::I32:
      return Written::Form::I32;
    case ValueType::Q8:
      return Written::Form::Q8;
    case ValueType::BF16:
      return Written::Form::BF16;
  }
  return Written::Form::I32;
}

class WrittenMemory {
 public:
  WrittenMemory(const BackendSetup& setup, const HostArena& arena, const Batch& batch,
                const program::Step& step)
      : setup_(setup), batch_(batch) {
    for (const program::View& operand : step.outputs) {
      if (operand.value != program::kAbsent) add_value(arena, operand);
    }
    const int32_t slot = stored_slot(step.op, step.attrs);
    if (slot >= 0) step.op == StepOp::KvStore ? add_cache_rows(slot) : add_blocks(slot);
    if (kept_by(step.attrs).state >= 0) add_states();
  }

  std::vector<std::vector<std::byte>> copy() const {
    std::vector<std::vector<std::byte>> out;
    for (const Written& each : all_) out.emplace_back(each.data, each.data + each.bytes);
    return out;
  }
  void restore(const std::vector<std::vector<std::byte>>& saved) const {
    for (size_t i = 0; i < all_.size(); ++i) {
      std::memcpy(all_[i].data, saved[i].data(), saved[i].size());
    }
  }
  double distance(const std::vector<std::vector<std::byte>>& fast,
                  const std::vector<std::vector<std::byte>>& scalar) const {
    Distance sum;
    for (size_t i = 0; i < all_.size(); ++i) sum.add(all_[i], fast[i], scalar[i]);
    return sum.value();
  }

 private:
  // Row by row: of an operand's columns, or of whole rows that are not of 4-byte elements.
  void add_value(const HostArena& arena, const program::View& operand) {
    const program::Value& value = setup_.plan.program->values[operand.value];
    const ValueType type = value.type;
    const auto row = static_cast<uint64_t>(ktx::value_row_bytes(type, value.width));
    const int64_t rows = batch_.rows(value.rows) * value.rows_per_row;
    const bool whole = type == ValueType::Q8 || type == ValueType::BF16;
    const uint64_t begin = whole ? 0 : 4 * static_cast<uint64_t>(operand.offset);
    const uint64_t bytes = type == ValueType::Q8     ? row
                           : type == ValueType::BF16 ? 2 * static_cast<uint64_t>(value.width)
                                                     : 4 * static_cast<uint64_t>(operand.width);
    for (int64_t r = 0; r < rows; ++r) {
      all_.push_back({form_of(type), arena.place(value) + static_cast<uint64_t>(r) * row + begin,
                      bytes, value.width});
    }
  }

  std::byte* block(int32_t slot, size_t token) const {
    const auto& tables = batch_.tables[setup_.kv.kind_of(slot)];
    const auto number =
        static_cast<size_t>(batch_.position[token] / setup_.kv.layout(slot).block_tokens);
    std::byte* const begin = tables[static_cast<size_t>(batch_.sequence[token])][number];
    return begin != nullptr ? begin + setup_.kv.slot_offset(slot) : nullptr;
  }

  static Written::Form form_of_cache(kernels::KvType type) {
    return type == kernels::KvType::F32   ? Written::Form::F32
           : type == kernels::KvType::F16 ? Written::Form::CacheF16
                                          : Written::Form::CacheQ8;
  }

  void add_cache_rows(int32_t slot) {
    const kernels::KvLayout& layout = setup_.kv.layout(slot);
    const Written::Form form = form_of_cache(layout.type);
    for (size_t token = 0; token < static_cast<size_t>(batch_.tokens); ++token) {
      std::byte* const begin = block(slot, token);
      const int64_t place = batch_.position[token] % layout.block_tokens;
      for (int64_t head = 0; begin != nullptr && head < layout.kv_heads; ++head) {
        all_.push_back({form, begin + layout.key_offset(head, place),
                        static_cast<uint64_t>(layout.key_row_bytes()), layout.key_dim});
        if (layout.value_dim == 0) continue;
        all_.push_back({form, begin + layout.value_offset(head, place),
                        static_cast<uint64_t>(layout.value_row_bytes()), layout.value_dim});
      }
    }
  }

  // Entries, whole blocks of them.
  void add_blocks(int32_t slot) {
    const kernels::KvLayout& layout = setup_.kv.layout(slot);
    std::byte* last = nullptr;
    for (size_t token = 0; token < static_cast<size_t>(batch_.tokens); ++token) {
      std::byte* const begin = block(slot, token);
      if (begin == nullptr || begin == last) continue;
      last = begin;
      all_.push_back(
          {form_of_cache(layout.type), begin, static_cast<uint64_t>(layout.slot_bytes()), 0});
    }
  }

  void add_states() {
    for (const SequenceState& state : batch_.states) {
      for (const StateOut& out : state.outs) {
        if (out.data == nullptr) continue;
        all_.push_back({Written::Form::F32, reinterpret_cast<std::byte*>(out.data),
                        setup_.kv.states().bytes(out.slot).size(), 0});
      }
    }
  }

  const BackendSetup& setup_;
  const Batch& batch_;
  std::vector<Written> all_;
};

}  // namespace

Status RepeatedSteps::run_once(uint32_t step, Isa isa, const Batch& batch) {
  BoundPlan bound = KTX_TRY(bind(setup_.plan, setup_.kv,
                                 {.arena = arena_.memory.data(),
                                  .buffer_offsets = arena_.layout.offsets,
                                  .isa = isa,
                                  .precision = setup_.precision,
                                  .threads = setup_.pool.threads(),
                                  .shares = setup_.pool.shares(),
                                  .partials = &partials_,
                                  .cpu_op = setup_.cpu_op,
                                  .first_step = step,
                                  .step_count = 1}));
  Executor executor = KTX_TRY(Executor::create(std::move(bound), setup_.pool));
  return executor.run(batch);
}

Status RepeatedSteps::run(const Part& part, const Batch& batch,
                          const std::function<void(uint32_t step)>& done) {
  for (uint32_t i = part.first_step; i < part.first_step + part.step_count; ++i) {
    const program::Step& step = setup_.plan.program->steps[i];
    if (step.kernels[static_cast<size_t>(setup_.precision)].empty()) continue;
    const WrittenMemory memory(setup_, arena_, batch, step);
    const auto before = memory.copy();
    KTX_TRY(run_once(i, setup_.isa, batch));
    const auto fast = memory.copy();
    memory.restore(before);
    KTX_TRY(run_once(i, Isa::Scalar, batch));
    setup_.on_repeat({i, memory.distance(fast, memory.copy())});
    memory.restore(fast);
    done(i);
  }
  return {};
}

}  // namespace ktx::runtime
