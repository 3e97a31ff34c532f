// Places of diagnostics in SARIF, in the form that code scanning can show.
//
//   /checkout/rules/moe.yaml:14:11, of 24 bytes
//   -> uri "rules/moe.yaml", region 14:11 to 14:35, fingerprint of line 14
//
// A file inside the checkout has a URI relative to its root: GITHUB_WORKSPACE if the program
// runs in it, else the current folder. Symbolic links are resolved, because code scanning does
// not follow them. Any other file has an absolute file:// URI.
#pragma once

#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "lib/support/diag.h"

namespace ktx::tools {

class SarifPlaces {
 public:
  explicit SarifPlaces(const DiagSink& sink);

  bool in_checkout(const std::string& file) const;
  nlohmann::ordered_json artifact(const std::string& file) const;
  // Columns count code points from 1. A place without a line is the start of the file.
  nlohmann::ordered_json region(const SourceLoc& loc) const;
  // The region that a fix-it replaces; it may be empty.
  nlohmann::ordered_json edited_region(const SourceLoc& loc) const;
  nlohmann::ordered_json location(const SourceLoc& loc) const;
  // The fingerprint of a place in a text that the sink knows, else "".
  std::string fingerprint(const SourceLoc& loc);

 private:
  std::string relative(const std::string& file) const;  // "" outside of the checkout
  nlohmann::ordered_json span(const SourceLoc& loc, int least) const;

  const std::vector<std::string_view>* lines_of(const std::string& file) const;

  const DiagSink& sink_;
  std::filesystem::path root_;
  mutable std::map<std::string, std::vector<std::string_view>> lines_;  // by file
  std::map<std::string, std::vector<std::string>> fingerprints_;        // by file
};

}  // namespace ktx::tools
