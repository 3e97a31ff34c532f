#include "tools/ktx-compile/inner_plan.h"

#include <fmt/format.h>

#include <filesystem>

namespace ktx::tools {
namespace {

std::string text_of(const Diagnostic& diag, std::string_view whose) {
  if (diag.loc.file.empty()) return fmt::format("{}: {}", whose, diag.message);
  if (diag.loc.line == 0) return fmt::format("{}: {}: {}", whose, diag.loc.file, diag.message);
  return fmt::format("{}: {}:{}:{}: {}", whose, diag.loc.file, diag.loc.line, diag.loc.column,
                     diag.message);
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

}  // namespace ktx::tools
