#include "lib/server/models/offered_plans.h"

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <set>

#include "lib/plan/quantization_name.h"
#include "lib/support/hash.h"
#include "lib/text/utf8.h"

namespace ktx::server {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kExtension = ".ktxplan";
constexpr int kMostDeep = 3;
constexpr int kMostEntries = 10000;
constexpr size_t kLongestName = 128;

// A name can be sent in JSON and printed in a line.
bool can_be_named(const std::string& name) {
  const auto control = [](char c) { return static_cast<unsigned char>(c) < ' ' || c == 0x7f; };
  return !name.empty() && std::none_of(name.begin(), name.end(), control) &&
         text::valid_utf8_prefix(name) == name.size();
}

// Nothing where there is no such file.
std::optional<OfferedPlan> plan_at(const fs::path& path, std::string name, std::string folder) {
  std::error_code error;
  if (!fs::is_regular_file(path, error)) return std::nullopt;
  OfferedPlan plan{std::move(name), path.string(), std::move(folder), 0, 0};
  plan.file_bytes = fs::file_size(path, error);
  const auto modified = fs::last_write_time(path, error);
  plan.modified = std::chrono::duration_cast<std::chrono::seconds>(
                      fs::file_time_type::clock::to_sys(modified).time_since_epoch())
                      .count();
  if (error || !can_be_named(plan.name)) return std::nullopt;
  return plan;
}

// "models/org/x.ktxplan" in "models" -> "org/x".
std::string name_in(const fs::path& path, const fs::path& folder) {
  std::string name = path.lexically_relative(folder).generic_string();
  name.resize(name.size() - kExtension.size());
  return name;
}

void add_folder(const std::string& folder, std::vector<OfferedPlan>& plans) {
  std::error_code error;
  fs::recursive_directory_iterator at(folder, fs::directory_options::skip_permission_denied, error);
  const size_t before = plans.size();
  for (int seen = 0; !error && at != fs::end(at) && seen < kMostEntries; ++seen) {
    const fs::path& path = at->path();
    if (at.depth() + 1 >= kMostDeep || path.filename().string().starts_with('.')) {
      at.disable_recursion_pending();
    }
    const std::string file = path.filename().string();
    if (file.ends_with(kExtension) && !file.starts_with('.')) {
      if (auto plan = plan_at(path, name_in(path, folder), folder)) plans.push_back(*plan);
    }
    at.increment(error);
  }
  std::sort(plans.begin() + static_cast<ptrdiff_t>(before), plans.end(),
            [](const OfferedPlan& a, const OfferedPlan& b) { return a.name < b.name; });
}

}  // namespace

text::ToolCallFormat tool_format_of(const plan::PlanChatTemplate& templates) {
  const auto named = templates.named.find(kToolUse);
  const std::string& source = named == templates.named.end() ? templates.source : named->second;
  const text::ToolCallFormat format = text::detect_tool_call_format(source);
  const bool generic = format == text::ToolCallFormat::None && !source.empty();
  return generic ? text::ToolCallFormat::Generic : format;
}

PlanSummary summarize(const plan::PlanView& plan) {
  PlanSummary summary;
  summary.facts = plan.facts;
  summary.quantization = plan::quantization_name(plan);
  const std::string hash = to_hex(plan.identity);
  summary.digest = hash + hash;
  summary.file_bytes = plan.file_bytes;
  for (const plan::BlobRecord& blob : plan.blobs) summary.weight_bytes += blob.size;
  summary.chat_template = plan.chat_template.source;
  summary.tool_format = tool_format_of(plan.chat_template);
  return summary;
}

std::vector<OfferedPlan> find_plans(std::span<const std::string> sources) {
  std::vector<OfferedPlan> plans;
  for (const std::string& source : sources) {
    std::error_code error;
    if (fs::is_directory(source, error)) {
      add_folder(source, plans);
      continue;
    }
    // What was named stands in the list even if it is no file: loading it says why.
    const std::string name = fs::path(source).stem().string();
    plans.push_back(plan_at(source, name, "").value_or(OfferedPlan{name, source, "", 0, 0}));
  }
  std::set<std::string> names;
  std::erase_if(plans, [&](const OfferedPlan& plan) { return !names.insert(plan.name).second; });
  return plans;
}

bool is_plan_name(const std::string& name) {
  if (name.empty() || name.size() > kLongestName || name.back() == '/') return false;
  for (size_t i = 0; i < name.size(); ++i) {
    const char c = name[i];
    const bool first = i == 0 || name[i - 1] == '/';
    const bool word = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                      c == '-' || c == '_' || c == ':';
    if (first ? !word : !word && c != '.' && c != '/') return false;
  }
  return true;
}

}  // namespace ktx::server
