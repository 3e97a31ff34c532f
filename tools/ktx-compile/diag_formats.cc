#include "tools/ktx-compile/diag_formats.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "lib/rules/checks.h"

namespace ktx::tools {
namespace {

using Json = nlohmann::ordered_json;
constexpr const char* kLevels[] = {"note", "warning", "error"};

std::string dump(const Json& json) {
  // Paths and texts of rule files may be no UTF-8.
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

Json place(const SourceLoc& loc) {
  Json json = {{"file", loc.file}};
  if (loc.line > 0) {
    json["line"] = loc.line;
    json["column"] = loc.column;
    json["length"] = loc.length;
  }
  return json;
}

// A relative reference: bytes that a URI cannot hold are escaped.
std::string uri(const std::string& path) {
  std::string out;
  for (const unsigned char c : path) {
    const bool plain = std::isalnum(c) || std::string_view("-._~/").find(static_cast<char>(c)) !=
                                              std::string_view::npos;
    out += plain ? std::string(1, static_cast<char>(c)) : fmt::format("%{:02X}", c);
  }
  return path.starts_with('/') ? "file://" + out : out;
}

Json region(const SourceLoc& loc) {
  return {{"startLine", loc.line},
          {"startColumn", std::max(loc.column, 1)},
          {"endColumn", std::max(loc.column, 1) + std::max(loc.length, 0)}};
}

Json sarif_location(const SourceLoc& loc) {
  Json physical = {{"artifactLocation", {{"uri", uri(loc.file)}}}};
  if (loc.line > 0) physical["region"] = region(loc);
  return {{"physicalLocation", physical}};
}

Json sarif_fix(const FixIt& fix) {
  const Json replacement = {{"deletedRegion", region(fix.range)},
                            {"insertedContent", {{"text", fix.replacement}}}};
  const Json change = {{"artifactLocation", {{"uri", uri(fix.range.file)}}},
                       {"replacements", Json::array({replacement})}};
  return {{"description", {{"text", fmt::format("write '{}'", fix.replacement)}}},
          {"artifactChanges", Json::array({change})}};
}

std::string with_help(const Diagnostic& diag) {
  std::string text = diag.message;
  for (const DiagNote& note : diag.notes) {
    if (note.is_help) text += "\nhelp: " + note.text;
  }
  return text;
}

Json sarif_result(const Diagnostic& diag) {
  Json result = {{"level", kLevels[static_cast<int>(diag.severity)]},
                 {"message", {{"text", with_help(diag)}}}};
  if (!diag.code.empty()) result["ruleId"] = "KTX-" + diag.code;
  result["locations"] = Json::array();
  if (!diag.loc.file.empty()) result["locations"].push_back(sarif_location(diag.loc));
  Json related = Json::array();
  for (const DiagNote& note : diag.notes) {
    if (note.is_help || note.loc.file.empty()) continue;
    Json location = sarif_location(note.loc);
    location["message"] = {{"text", note.text}};
    related.push_back(location);
  }
  if (!related.empty()) result["relatedLocations"] = related;
  Json fixes = Json::array();
  for (const FixIt& fix : diag.fixes) fixes.push_back(sarif_fix(fix));
  if (!fixes.empty()) result["fixes"] = fixes;
  return result;
}

}  // namespace

std::string to_json(const DiagSink& sink, const std::string& coverage) {
  Json list = Json::array();
  for (const Diagnostic& diag : sink.all()) {
    Json entry = {{"severity", kLevels[static_cast<int>(diag.severity)]},
                  {"code", diag.code.empty() ? "" : "KTX-" + diag.code},
                  {"message", diag.message}};
    entry.update(place(diag.loc));
    entry["notes"] = Json::array();
    for (const DiagNote& note : diag.notes) {
      Json row = {{"kind", note.is_help ? "help" : "note"}, {"message", note.text}};
      if (!note.loc.file.empty()) row.update(place(note.loc));
      entry["notes"].push_back(row);
    }
    entry["fixes"] = Json::array();
    for (const FixIt& fix : diag.fixes) {
      Json row = place(fix.range);
      row["replacement"] = fix.replacement;
      entry["fixes"].push_back(row);
    }
    list.push_back(entry);
  }
  Json json = {{"version", 1},
               {"errors", sink.errors()},
               {"warnings", sink.warnings()},
               {"diagnostics", list}};
  if (!coverage.empty()) json["coverage"] = Json::parse(coverage, nullptr, false);
  return dump(json);
}

std::string to_sarif(const DiagSink& sink) {
  Json rules = Json::array();
  for (const rules::CheckInfo& check : rules::all_checks()) {
    Json rule = {{"id", fmt::format("KTX-{}", check.code)},
                 {"shortDescription", {{"text", check.title}}},
                 {"help", {{"text", rules::explain_check(check)}}}};
    rules.push_back(rule);
  }
  Json results = Json::array();
  for (const Diagnostic& diag : sink.all()) results.push_back(sarif_result(diag));
  const Json driver = {{"name", "ktx-compile"}, {"semanticVersion", KTX_VERSION}, {"rules", rules}};
  const Json run = {
      {"tool", {{"driver", driver}}}, {"columnKind", "unicodeCodePoints"}, {"results", results}};
  return dump({{"$schema", "https://json.schemastore.org/sarif-2.1.0.json"},
               {"version", "2.1.0"},
               {"runs", Json::array({run})}});
}

}  // namespace ktx::tools
