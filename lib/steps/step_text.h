// Words of the step graph's text form, shared by print and parse.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "lib/formats/step_ops.h"

namespace ktx::steps {

// The name itself, or "..." with \" \\ and \xNN escapes when it holds anything
// but letters, digits and ._-/ (or is empty).
std::string quote(std::string_view name);

std::string_view type_name(ValueType type);    // "f32", "i32", "q8", "bf16"
std::string_view row_kind_name(RowKind rows);  // "token", "output", "single"
std::optional<ValueType> type_from_name(std::string_view name);
std::optional<RowKind> row_kind_from_name(std::string_view name);

}  // namespace ktx::steps
