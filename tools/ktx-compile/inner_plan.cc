#include "tools/ktx-compile/inner_plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "lib/formats/dtype.h"
#include "lib/plan/device_memory.h"
#include "lib/rules/device_name.h"

namespace ktx::tools {
namespace {

std::string text_of(const Diagnostic& diag, std::string_view whose) {
  if (diag.loc.file.empty()) return fmt::format("{}: {}", whose, diag.message);
  if (diag.loc.line == 0) return fmt::format("{}: {}: {}", whose, diag.loc.file, diag.message);
  return fmt::format("{}: {}:{}:{}: {}", whose, diag.loc.file, diag.loc.line, diag.loc.column,
                     diag.message);
}

// The memory of a GPU of the target by its device's name; null: not one of them.
uint64_t* memory_of(passes::CompileState& state, const std::string& device) {
  const auto place = rules::parse_device(device);
  if (!place || place->kind != rules::DeviceSpec::Kind::Cuda || !place->host.empty())
    return nullptr;
  if (place->gpus[0] >= std::ssize(state.target.gpus)) return nullptr;
  return &state.target.gpus[static_cast<size_t>(place->gpus[0])].memory_bytes;
}

}  // namespace

void RemoveFile::operator()(std::string* path) const {
  std::error_code none;
  std::filesystem::remove(*path, none);
  delete path;
}

Error first_error(const DiagSink& sink, std::string_view whose, const std::string& otherwise) {
  for (const Diagnostic& diag : sink.all()) {
    if (diag.severity == Severity::Error) return Error{text_of(diag, whose)};
  }
  return Error{fmt::format("{}: {}", whose, otherwise)};
}

void hand_on_warnings(const DiagSink& from, std::string_view whose, DiagSink& to) {
  for (const Diagnostic& diag : from.all()) {
    if (diag.severity == Severity::Warning) to.warning({}, diag.code, text_of(diag, whose));
  }
}

uint64_t weight_bytes(const ir::ModuleGraph& graph) {
  uint64_t bytes = 0;
  for (const ir::Module& module : graph.modules) {
    for (const ir::Param& param : module.params) {
      bytes += static_cast<uint64_t>(row_bytes(param.dtype, param.cols).value_or(0)) *
               static_cast<uint64_t>(param.rows * param.matrices);
    }
  }
  return bytes;
}

void take_from(passes::CompileState& state, const std::string& device, uint64_t bytes) {
  if (uint64_t* const memory = memory_of(state, device)) *memory -= std::min(*memory, bytes);
}

Status take_memory_of(const plan::PlanView& plan, const plan::RunShape& shape,
                      passes::CompileState& state) {
  for (const plan::DeviceMemory& device : KTX_TRY(plan::memory_by_device(plan, shape))) {
    take_from(state, device.name, device.total());
  }
  return {};
}

}  // namespace ktx::tools
