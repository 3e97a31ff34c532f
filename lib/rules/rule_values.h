// Reads the values of a rule file's keys. A value of the wrong form is reported at its place
// with a suggestion.
//
//   values.take_device(node, "device", replace.device, replace.place);
//   // rules.yaml:4:22: error: unknown device 'cuda:O'; did you mean 'cuda:0'?
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "lib/rules/rule.h"
#include "lib/rules/yaml_tree.h"
#include "lib/support/diag.h"

namespace ktx::rules {

std::optional<int64_t> parse_int(std::string_view text);
std::optional<bool> parse_bool(std::string_view text);

// "; did you mean 'x'?", or nothing for no name.
std::string suggestion(const std::string& nearest);

class RuleValues {
 public:
  RuleValues(std::string path, DiagSink& diags) : path_(std::move(path)), diags_(diags) {}

  DiagSink& diags() { return diags_; }

  // An error of a file's form (Y003).
  Diagnostic& wrong(const YamlNode& node, std::string message);
  // A scalar as it is written.
  std::string source_of(const YamlNode& node) const;
  // Replaces a scalar's text and keeps its quotes.
  void fix_value(Diagnostic& diag, const Located& value, const std::string& text);

  // These leave `out` as it is, or empty, where the value is none of theirs.
  bool take_text(const YamlNode& node, std::string_view key, std::optional<Located>& out);
  void take_bool(const YamlNode& node, std::string_view key, bool& out);
  void take_device(const YamlNode& node, std::string_view key, std::optional<Located>& text,
                   std::optional<DeviceSpec>& place);
  // GPUs that compute together: two and more.
  void take_devices(const YamlNode& node, std::optional<Located>& text,
                    std::optional<DeviceSpec>& place);
  void take_split(const YamlNode& node, std::vector<Split>& out);
  void take_layout(const YamlNode& node, std::optional<Located>& out);
  void take_lossy(const YamlNode& node, std::optional<Located>& out, bool& allowed);
  void take_op(const YamlNode& node, std::string_view key, std::optional<Located>& text,
               const OpInfo*& info);

  void bad_device(const Located& value);
  // Null for an op that is not known, which is reported.
  const OpInfo* resolve_op(const Located& value);

 private:
  void take_device_list(const YamlNode& node, std::string_view key, std::optional<Located>& text,
                        std::optional<DeviceSpec>& place);

  std::string path_;
  DiagSink& diags_;
};

}  // namespace ktx::rules
