#include "tools/ktx-compile/diag_formats.h"

#include <nlohmann/json.hpp>

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

}  // namespace ktx::tools
