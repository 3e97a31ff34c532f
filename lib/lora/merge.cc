#include "lib/lora/merge.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>

#include "lib/formats/quantize_row.h"
#include "lib/support/strings.h"

namespace ktx::lora {
namespace {

constexpr size_t kMostFaults = 8;  // listed per adapter

void decode_row(const LoraMatrix& matrix, int64_t row, std::vector<float>& out) {
  out.resize(static_cast<size_t>(matrix.cols));
  const std::byte* const bytes = matrix.bytes.data() + row * *row_bytes(matrix.dtype, matrix.cols);
  dequantize_row(matrix.dtype, bytes, matrix.cols, out.data());
}

struct ParamUse {
  const ir::Module* module = nullptr;
  const ir::Param* param = nullptr;
};
using ParamUses = std::multimap<std::string_view, ParamUse>;

ParamUses uses_of_params(const ir::ModuleGraph& graph) {
  ParamUses uses;
  for (const ir::Module& module : graph.modules) {
    for (const ir::Param& param : module.params) {
      for (const TensorSlice& slice : param.sources) {
        uses.emplace(slice.tensor, ParamUse{&module, &param});
      }
    }
  }
  return uses;
}

bool is_product(const ParamUse& use) {
  const ir::Kind kind = ir::kind_of(use.module->role);
  const std::string& name = use.param->name;
  if (kind == ir::Kind::Experts) return name == "gate" || name == "up" || name == "down";
  return (kind == ir::Kind::Linear || kind == ir::Kind::Router) && name == "weight";
}

// What stands in the way of merging; "": nothing.
std::string fault_of(const LoraPair& pair, const input::GgufFile& gguf, const ParamUses& uses) {
  const input::GgufTensor* const tensor = gguf.find(pair.tensor);
  if (tensor == nullptr) return "the model has no such tensor";
  const auto [first, last] = uses.equal_range(pair.tensor);
  if (first == last) return "no module of the model reads it";
  for (auto use = first; use != last; ++use) {
    const ir::Param& param = *use->second.param;
    if (!is_product(use->second)) {
      return fmt::format(
          "it is '{}' of {}, to which no low-rank term is added (linear layers and "
          "experts take them)",
          param.name, printable(use->second.module->path));
    }
    // A row that stands upright in the file would need a term of another shape.
    if (param.cols > tensor->shape[0]) {
      return fmt::format(
          "rows of '{}' of {} have {} weights, and the file's have {}; leave it out of the adapter",
          param.name, printable(use->second.module->path), param.cols, tensor->shape[0]);
    }
  }
  const bool fits = tensor->n_dims <= 3 && pair.a.cols == tensor->shape[0] &&
                    pair.b.rows == tensor->shape[1] && pair.matrices == tensor->shape[2];
  if (!fits) {
    return fmt::format("it is for a tensor of {} x {} x {}, and the model's is {} x {} x {}",
                       pair.a.cols, pair.b.rows, pair.matrices, tensor->shape[0], tensor->shape[1],
                       tensor->shape[2]);
  }
  if (!can_quantize(tensor->dtype)) {
    return fmt::format(
        "it is in {}, to which weights cannot be rounded again; compute with the "
        "adapter instead (ktx-run --lora)",
        name(tensor->dtype));
  }
  return "";
}

Status check(const LoraAdapter& adapter, const input::GgufFile& gguf, const ParamUses& uses) {
  const std::string_view own = gguf.architecture();
  if (!adapter.architecture.empty() && adapter.architecture != own) {
    return Error{
        fmt::format("{}: the adapter is for a model of architecture '{}', this one is '{}'",
                    adapter.path, printable(adapter.architecture), printable(own))};
  }
  std::string text;
  size_t faults = 0;
  for (const LoraPair& pair : adapter.pairs) {
    const std::string fault = fault_of(pair, gguf, uses);
    if (fault.empty()) continue;
    if (++faults <= kMostFaults) text += fmt::format("\n  {}: {}", printable(pair.tensor), fault);
  }
  if (faults == 0) return {};
  if (faults > kMostFaults) text += fmt::format("\n  and {} more", faults - kMostFaults);
  return Error{fmt::format("{}: the adapter cannot be merged into {} ({} of {} tensors):{}",
                           adapter.path, printable(gguf.path()), faults, adapter.pairs.size(),
                           text)};
}

}  // namespace

void MergedTensor::add_to(int64_t row, int64_t begin, std::span<float> x) const {
  std::vector<float> left, right, sum(x.size());
  for (const auto& [pair, scale] : terms_) {
    decode_row(pair->b, row, left);
    std::ranges::fill(sum, 0.f);
    KTX_ASSERT(begin + std::ssize(x) <= pair->a.cols);
    const int64_t first = row / pair->b.rows * pair->a.rows;  // of its matrix
    for (size_t r = 0; r < left.size(); ++r) {
      decode_row(pair->a, first + static_cast<int64_t>(r), right);
      const float* const part = right.data() + begin;
      for (size_t i = 0; i < sum.size(); ++i) sum[i] += left[r] * part[i];
    }
    for (size_t i = 0; i < sum.size(); ++i) x[i] += scale * sum[i];
  }
}

Result<Merge> Merge::make(std::vector<std::shared_ptr<const LoraAdapter>> adapters,
                          const input::GgufFile& gguf, const ir::ModuleGraph& graph) {
  const ParamUses uses = uses_of_params(graph);
  Merge merge;
  merge.adapters_ = std::move(adapters);
  for (const auto& adapter : merge.adapters_) {
    KTX_TRY(check(*adapter, gguf, uses));
    merge.texts_.push_back(fmt::format("{} at scale {}", adapter->name, adapter->scale));
    for (const LoraPair& pair : adapter->pairs) {
      merge.tensors_[pair.tensor].add(pair, adapter->scale);
    }
  }
  return merge;
}

const MergedTensor* Merge::find(std::string_view tensor) const {
  const auto found = tensors_.find(tensor);
  return found == tensors_.end() ? nullptr : &found->second;
}

}  // namespace ktx::lora
