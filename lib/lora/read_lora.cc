#include "lib/lora/read_lora.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <map>
#include <string_view>

#include "lib/input/gguf.h"
#include "lib/support/strings.h"

namespace ktx::lora {
namespace {

constexpr int64_t kMostRank = 4096;
constexpr std::string_view kA = ".lora_a", kB = ".lora_b";

Status check_kind(const input::GgufFile& gguf) {
  const std::string_view type = gguf.string("general.type").value_or("model");
  if (type != "adapter") {
    return Error{fmt::format(
        "general.type is '{}', expected 'adapter'; convert the PEFT adapter with llama.cpp's "
        "convert_lora_to_gguf.py",
        printable(type))};
  }
  const std::string_view kind = gguf.string("adapter.type").value_or("");
  if (kind != "lora") {
    return Error{fmt::format("adapter.type is '{}', expected 'lora'", printable(kind))};
  }
  if (gguf.value("adapter.alora.invocation_tokens")) {
    return Error{"the adapter has invocation tokens (aLoRA), which are not supported"};
  }
  return {};
}

struct Halves {
  const input::GgufTensor* a = nullptr;
  const input::GgufTensor* b = nullptr;
};

Result<std::map<std::string, Halves, std::less<>>> find_halves(const input::GgufFile& gguf) {
  std::map<std::string, Halves, std::less<>> halves;
  for (const input::GgufTensor& tensor : gguf.tensors()) {
    const bool a = tensor.name.ends_with(kA), b = tensor.name.ends_with(kB);
    if (!a && !b) {
      return Error{fmt::format(
          "tensor '{}' is not part of a low-rank pair, whose names end in .lora_a and .lora_b",
          printable(tensor.name))};
    }
    Halves& own = halves[std::string(tensor.name.substr(0, tensor.name.size() - kA.size()))];
    (a ? own.a : own.b) = &tensor;
  }
  if (halves.empty()) return Error{"the adapter has no tensors"};
  return halves;
}

LoraMatrix matrix_of(const input::GgufTensor& tensor) {
  return {tensor.dtype, tensor.shape[1], tensor.shape[0], tensor.bytes};
}

Result<LoraPair> pair_of(const std::string& name, const Halves& halves, float alpha) {
  const std::string shown = printable(name);
  if (!halves.a || !halves.b) {
    return Error{fmt::format("tensor '{}{}' is missing", shown, halves.a ? kB : kA)};
  }
  for (const input::GgufTensor* half : {halves.a, halves.b}) {
    if (half->n_dims < 2 || half->n_dims > 3 || half->dtype == DType::I32) {
      return Error{
          fmt::format("tensor '{}' is no weight matrix and no stack of them ({}, {} "
                      "dimension{})",
                      printable(half->name), ktx::name(half->dtype), half->n_dims,
                      half->n_dims == 1 ? "" : "s")};
    }
  }
  LoraPair pair{name, matrix_of(*halves.a), matrix_of(*halves.b), 1, halves.a->shape[2]};
  if (halves.b->shape[2] != pair.matrices) {
    return Error{fmt::format("'{}': lora_a has {} matrices, lora_b {}", shown, pair.matrices,
                             halves.b->shape[2])};
  }
  const int64_t rank = pair.a.rows;
  if (pair.b.cols != rank) {
    return Error{fmt::format("'{}': lora_a has rank {}, lora_b {}", shown, rank, pair.b.cols)};
  }
  if (rank < 1 || rank > kMostRank) {
    return Error{fmt::format("'{}' has rank {}, expected 1 to {}", shown, rank, kMostRank)};
  }
  if (alpha != 0) pair.scale = alpha / static_cast<float>(rank);
  return pair;
}

Result<std::shared_ptr<LoraAdapter>> adapter_of(
    const std::string& path, const std::shared_ptr<const input::GgufFile>& gguf) {
  KTX_TRY(check_kind(*gguf));
  // Without it, or with 0, A and B are taken as they are.
  const float alpha = gguf->f32("adapter.lora.alpha").value_or(0);
  if (!std::isfinite(alpha)) return Error{"adapter.lora.alpha is not finite"};
  auto adapter = std::make_shared<LoraAdapter>();
  adapter->name = std::filesystem::path(path).stem().string();
  adapter->path = path;
  adapter->architecture = gguf->architecture();
  adapter->file = gguf;
  for (const auto& [name, halves] : KTX_TRY(find_halves(*gguf))) {
    adapter->pairs.push_back(KTX_TRY(pair_of(name, halves, alpha)));
  }
  return adapter;
}

}  // namespace

Result<std::shared_ptr<LoraAdapter>> read_adapter(const std::string& path) {
  auto gguf = std::make_shared<const input::GgufFile>(KTX_TRY(input::GgufFile::open(path)));
  auto adapter = adapter_of(path, gguf);
  if (!adapter) return Error{fmt::format("{}: {}", path, adapter.error().message)};
  return adapter;
}

}  // namespace ktx::lora
