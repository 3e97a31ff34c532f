// JSON-Schema-Test-Suite (github.com/json-schema-org) against the grammars of schemas: no instance
// that the suite calls invalid may be written under a schema that compiles. The suite is not part
// of this repository: KTX_JSON_SCHEMA_TEST_SUITE names a folder that has it. The shares of schemas
// that compile and of valid instances that can be written stand in docs/constrained-output.md.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>

#include "tests/support/paths.h"
#include "tests/unit/text/grammar/grammar_tools.h"

namespace ktx::text {
namespace {

using Json = nlohmann::ordered_json;

// Orders of the members of an object; the outermost one only, as instances are small.
std::vector<Json> orders(const Json& instance) {
  if (!instance.is_object() || instance.size() < 2 || instance.size() > 5) return {instance};
  std::vector<std::string> names;
  for (const auto& [name, value] : instance.items()) names.push_back(name);
  std::sort(names.begin(), names.end());
  std::vector<Json> out;
  do {
    Json& one = out.emplace_back(Json::object());
    for (const std::string& name : names) one[name] = instance[name];
  } while (std::next_permutation(names.begin(), names.end()));
  return out;
}
std::vector<std::string> writings(const Json& instance) {
  std::vector<std::string> out;
  for (const Json& one : orders(instance)) {
    out.push_back(one.dump());
    out.push_back(one.dump(-1, ' ', true));
    out.push_back(one.dump(2));
  }
  return out;
}
bool can_be_written(const Grammar& grammar, const Json& instance) {
  const std::vector<std::string> texts = writings(instance);
  return std::any_of(texts.begin(), texts.end(),
                     [&](const std::string& text) { return matches(grammar, text); });
}

struct Count {
  int schemas = 0, compiled = 0, valid = 0, accepted = 0, invalid = 0;
  std::map<std::string, int> reasons;
};

void read_file(const std::filesystem::path& file, Count& count) {
  std::ifstream in(file);
  for (const Json& group : Json::parse(in)) {
    ++count.schemas;
    const std::string name = file.stem().string() + ": " + group["description"].get<std::string>();
    const Result<Grammar> grammar = Grammar::compile_schema(group["schema"], small_vocabulary());
    if (!grammar) {
      const std::string& error = grammar.error().message;
      // Nothing at all is allowed: right where no instance is valid.
      const bool none = error == "the grammar matches no text at all";
      const auto& tests = group["tests"];
      const bool right = none && std::none_of(tests.begin(), tests.end(), [](const Json& test) {
                           return test["valid"] == true;
                         });
      count.compiled += right ? 1 : 0;
      if (!right) ++count.reasons[name + " | " + error];
      continue;
    }
    ++count.compiled;
    for (const Json& test : group["tests"]) {
      const bool accepted = can_be_written(*grammar, test["data"]);
      if (test["valid"] == true) {
        ++count.valid;
        count.accepted += accepted ? 1 : 0;
        if (!accepted) ++count.reasons["narrow | " + name + " | " + test["data"].dump()];
      } else {
        ++count.invalid;
        EXPECT_FALSE(accepted) << name << ": " << group["schema"] << " accepts " << test["data"];
      }
    }
  }
}

// The figures of a row of the document: | `draft7` | 1 of 2 | 3 of 4 |
std::vector<int> documented(const std::string& row) {
  std::ifstream in(source_dir() + "/docs/constrained-output.md");
  for (std::string line; std::getline(in, line);) {
    if (!line.starts_with("| `" + row + "`")) continue;
    std::vector<int> out;
    for (const char* at = line.c_str() + row.size() + 5; *at != 0;) {
      char* end = nullptr;
      const long number = std::strtol(at, &end, 10);
      if (end == at) {
        ++at;
        continue;
      }
      out.push_back(static_cast<int>(number));
      at = end;
    }
    return out;
  }
  return {};
}

TEST(JsonSchemaTestSuite, AcceptsNothingInvalid) {
  const char* folder = std::getenv("KTX_JSON_SCHEMA_TEST_SUITE");
  const std::filesystem::path tests = std::filesystem::path(folder ? folder : "") / "tests";
  if (folder == nullptr || !std::filesystem::exists(tests)) {
    GTEST_SKIP() << "KTX_JSON_SCHEMA_TEST_SUITE names no folder with JSON-Schema-Test-Suite";
  }
  for (const char* part :
       {"draft7", "draft2020-12", "draft7/optional/format", "draft2020-12/optional/format"}) {
    Count count;
    std::vector<std::filesystem::path> files;
    for (const auto& entry : std::filesystem::directory_iterator(tests / part)) {
      if (entry.path().extension() == ".json") files.push_back(entry.path());
    }
    std::sort(files.begin(), files.end());
    for (const auto& file : files) read_file(file, count);
    fmt::print(
        "{}: {} of {} schemas compiled, {} of {} valid instances written, {} invalid refused\n",
        part, count.compiled, count.schemas, count.accepted, count.valid, count.invalid);
    if (std::getenv("KTX_VERBOSE") != nullptr) {
      for (const auto& [reason, times] : count.reasons) fmt::print("  {}\n", reason);
    }
    EXPECT_EQ(documented(part),
              (std::vector<int>{count.compiled, count.schemas, count.accepted, count.valid}))
        << "docs/constrained-output.md, row " << part;
  }
}

}  // namespace
}  // namespace ktx::text
