#include "tools/ktx-compile/sarif.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <span>

#include "lib/rules/checks.h"
#include "lib/support/hash.h"
#include "tools/ktx-compile/sarif_places.h"

namespace ktx::tools {
namespace {

using Json = nlohmann::ordered_json;
constexpr const char* kSarifLevels[] = {"note", "warning", "error"};
// Code scanning refuses a run of more than 25,000 results and shows 5,000 of them.
constexpr size_t kMaxResults = 5000;
constexpr size_t kMaxRelated = 100;
constexpr size_t kMaxDescription = 1024;  // bytes

std::string level_of(const Diagnostic& diag) {
  return kSarifLevels[static_cast<int>(diag.severity)];
}

// "error; warning when some of the layers exist" -> "error"
std::string usual_level(std::string_view severity) {
  for (const char* level : kSarifLevels) {
    if (severity.starts_with(level)) return level;
  }
  return "warning";
}

Json rules_json() {
  Json rules = Json::array();
  for (const rules::CheckInfo& check : rules::all_checks()) {
    const std::string full = fmt::format("{}. {}", check.title, check.explanation);
    rules.push_back({{"id", fmt::format("KTX-{}", check.code)},
                     {"shortDescription", {{"text", check.title}}},
                     {"fullDescription", {{"text", full.substr(0, kMaxDescription)}}},
                     {"help", {{"text", rules::explain_check(check)}}},
                     {"defaultConfiguration", {{"level", usual_level(check.severity)}}}});
  }
  return rules;
}

int rule_index(std::string_view code) {
  const auto checks = rules::all_checks();
  const auto found = std::find_if(checks.begin(), checks.end(), [&](const rules::CheckInfo& check) {
    return check.code == code;
  });
  return found == checks.end() ? -1 : static_cast<int>(found - checks.begin());
}

// Notes that have no place of their own are part of the message.
std::string whole_message(const Diagnostic& diag) {
  std::string text = diag.message;
  for (const DiagNote& note : diag.notes) {
    if (!note.is_help && !note.loc.file.empty()) continue;
    text += fmt::format("\n{}: {}", note.is_help ? "help" : "note", note.text);
  }
  return text;
}

class SarifWriter {
 public:
  explicit SarifWriter(const DiagSink& sink) : sink_(sink), places_(sink) {
    const auto& files = sink.source_files();
    const auto anchor = std::find_if(files.begin(), files.end(), [&](const std::string& file) {
      return places_.in_checkout(file);
    });
    if (anchor != files.end()) anchor_ = *anchor;
  }

  Json run(const SarifRun& run) {
    for (const Diagnostic& diag : sink_.all()) add(diag);
    if (left_out_ > 0) {
      notifications_.push_back(
          {{"level", "warning"},
           {"message",
            {{"text", fmt::format("{} more findings are left out: code scanning shows {}",
                                  left_out_, kMaxResults)}}}});
    }
    Json invocation = {{"executionSuccessful", run.finished && !failed_},
                       {"exitCode", run.exit_status}};
    if (!configuration_.empty()) invocation["toolConfigurationNotifications"] = configuration_;
    if (!notifications_.empty()) invocation["toolExecutionNotifications"] = notifications_;
    const Json driver = {
        {"name", "ktx-compile"}, {"semanticVersion", KTX_VERSION}, {"rules", rules_json()}};
    return {{"tool", {{"driver", driver}}},
            {"columnKind", "unicodeCodePoints"},
            {"invocations", Json::array({invocation})},
            {"results", results_}};
  }

 private:
  void add(const Diagnostic& diag) {
    const bool coded = rule_index(diag.code) >= 0;
    SourceLoc loc = diag.loc;
    const bool finding = diag.severity != Severity::Note && diag.code != "R008";
    if (loc.file.empty() && finding) loc.file = anchor_;
    if (!coded || loc.file.empty() || diag.code == "R008") return notify(diag, coded);
    if (results_.size() < kMaxResults) {
      results_.push_back(result(diag, loc));
    } else {
      ++left_out_;
    }
  }

  // What has a code is about the files and options given; the rest is about the run.
  void notify(const Diagnostic& diag, bool coded) {
    Json notification = {{"level", level_of(diag)}, {"message", {{"text", whole_message(diag)}}}};
    if (coded) {
      notification["associatedRule"] = {{"id", "KTX-" + diag.code},
                                        {"index", rule_index(diag.code)}};
    }
    if (!diag.loc.file.empty()) {
      notification["locations"] = Json::array({places_.location(diag.loc)});
    }
    failed_ = failed_ || diag.severity == Severity::Error;
    const bool about_call = coded || diag.severity == Severity::Note;
    (about_call ? configuration_ : notifications_).push_back(notification);
  }

  Json result(const Diagnostic& diag, const SourceLoc& loc) {
    std::string print = places_.fingerprint(loc);
    if (print.empty()) {
      const std::string text = diag.code + diag.message;
      print = to_hex(hash_bytes(std::as_bytes(std::span(text)))) + ":1";
    }
    Json result = {{"ruleId", "KTX-" + diag.code},
                   {"ruleIndex", rule_index(diag.code)},
                   {"level", level_of(diag)},
                   {"message", {{"text", whole_message(diag)}}},
                   {"locations", Json::array({places_.location(loc)})},
                   {"partialFingerprints", {{"primaryLocationLineHash", print}}}};
    Json related = Json::array();
    for (const DiagNote& note : diag.notes) {
      if (note.is_help || note.loc.file.empty() || related.size() == kMaxRelated) continue;
      Json location = places_.location(note.loc);
      location["id"] = related.size() + 1;
      location["message"] = {{"text", note.text}};
      related.push_back(location);
    }
    if (!related.empty()) result["relatedLocations"] = related;
    Json fixes = Json::array();
    for (const FixIt& fix : diag.fixes) fixes.push_back(fix_json(fix));
    if (!fixes.empty()) result["fixes"] = fixes;
    return result;
  }

  Json fix_json(const FixIt& fix) {
    const Json replacement = {{"deletedRegion", places_.edited_region(fix.range)},
                              {"insertedContent", {{"text", fix.replacement}}}};
    const Json change = {{"artifactLocation", places_.artifact(fix.range.file)},
                         {"replacements", Json::array({replacement})}};
    return {{"description", {{"text", fmt::format("write '{}'", fix.replacement)}}},
            {"artifactChanges", Json::array({change})}};
  }

  const DiagSink& sink_;
  SarifPlaces places_;
  std::string anchor_;  // where findings without a place are shown; "" when nowhere
  Json results_ = Json::array();
  Json configuration_ = Json::array();
  Json notifications_ = Json::array();
  size_t left_out_ = 0;
  bool failed_ = false;
};

}  // namespace

std::string to_sarif(const DiagSink& sink, const SarifRun& run) {
  const Json json = {{"$schema", "https://json.schemastore.org/sarif-2.1.0.json"},
                     {"version", "2.1.0"},
                     {"runs", Json::array({SarifWriter(sink).run(run)})}};
  // Paths and texts of rule files may be no UTF-8.
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace ktx::tools
