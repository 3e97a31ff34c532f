#include "lib/trust/bill_of_materials.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <string_view>
#include <vector>

#include "lib/plan/quantization_name.h"
#include "lib/support/strings.h"

namespace ktx::trust {
namespace {

using Json = nlohmann::ordered_json;

// "" where the GGUF does not say it.
std::string general(const plan::PlanView& plan, const std::string& key) {
  const auto found = plan.provenance.general.find(key);
  return found == plan.provenance.general.end() ? "" : found->second;
}

std::string model_name(const plan::PlanView& plan) {
  if (!plan.facts.name.empty()) return plan.facts.name;
  const std::string basename = general(plan, "basename");
  return basename.empty() ? plan.facts.architecture : basename;
}

// The first that the GGUF has.
std::string first_of(const plan::PlanView& plan, std::initializer_list<const char*> keys) {
  for (const char* key : keys) {
    if (std::string text = general(plan, key); !text.empty()) return text;
  }
  return "";
}

std::string version_of(const plan::PlanView& plan) {
  return first_of(plan, {"version", "revision"});
}

struct BaseModel {
  std::string name, organization, version, url;
};

std::vector<BaseModel> base_models(const plan::PlanView& plan) {
  constexpr int kMost = 16;
  std::vector<BaseModel> all;
  for (int i = 0; i < kMost; ++i) {
    const auto field = [&](const char* what) {
      return general(plan, fmt::format("base_model.{}.{}", i, what));
    };
    BaseModel base{field("name"), field("organization"), field("version"), field("repo_url")};
    if (base.url.empty()) base.url = field("url");
    if (!base.name.empty() || !base.url.empty()) all.push_back(std::move(base));
  }
  return all;
}

// {"license": {"id": "Apache-2.0"}}; none where the GGUF says none.
Json licences(const plan::PlanView& plan) {
  struct Row {
    std::string_view general, spdx;
  };
  static constexpr Row kRows[] = {
#define KTX_LICENCE(general, spdx) {general, spdx},
#include "lib/trust/licences.def"
  };
  const std::string said = general(plan, "license"), link = general(plan, "license.link");
  Json licence;
  for (const Row& row : kRows) {
    if (said == row.general || said == row.spdx) licence["id"] = row.spdx;
  }
  if (licence.is_null()) {
    const std::string name = first_of(plan, {"license.name", "license"});
    if (name.empty()) return Json();
    licence["name"] = name;
  }
  if (!link.empty()) licence["url"] = link;
  return Json::array({{{"license", licence}}});
}

Json property(const std::string& name, const std::string& value) {
  return {{"name", name}, {"value", value}};
}

Json properties_of(const plan::PlanView& plan) {
  Json all = Json::array();
  all.push_back(property("ktx:plan:hash", to_hex(plan.identity)));
  all.push_back(property("ktx:plan:format", fmt::format("{}.{}", plan::kMajor, plan.minor)));
  all.push_back(property("ktx:quantization", plan::quantization_name(plan)));
  all.push_back(property("ktx:rounded", plan.facts.lossy ? "true" : "false"));
  for (const std::string& adapter : plan.facts.merged) {
    all.push_back(property("ktx:merged", adapter));
  }
  all.push_back(property("ktx:target", plan.target.name));
  for (const std::string& option : plan.provenance.options) {
    all.push_back(property("ktx:option", option));
  }
  for (const auto& [key, value] : plan.provenance.general) {
    all.push_back(property("gguf:general." + key, value));
  }
  return all;
}

Json ancestors_of(const plan::PlanView& plan) {
  Json all = Json::array();
  for (const BaseModel& base : base_models(plan)) {
    Json ancestor = {{"type", "machine-learning-model"},
                     {"name", base.name.empty() ? base.url : base.name}};
    if (!base.organization.empty()) ancestor["supplier"] = {{"name", base.organization}};
    if (!base.version.empty()) ancestor["version"] = base.version;
    if (!base.url.empty()) {
      ancestor["externalReferences"] = Json::array({{{"type", "website"}, {"url", base.url}}});
    }
    all.push_back(std::move(ancestor));
  }
  return all;
}

// The files that the plan was made from.
Json inputs_of(const plan::PlanView& plan) {
  Json all = Json::array();
  for (size_t i = 0; i < plan.provenance.inputs.size(); ++i) {
    const plan::PlanProvenance::Input& input = plan.provenance.inputs[i];
    all.push_back({{"type", "file"},
                   {"bom-ref", fmt::format("input-{}", i)},
                   {"name", input.what},
                   {"properties",
                    {property("ktx:size_bytes", std::to_string(input.size_bytes)),
                     property(input.what == "gguf" ? "ktx:header:xxh3-128" : "ktx:xxh3-128",
                              to_hex(input.hash))}}});
  }
  return all;
}

std::string dump(const Json& json) {
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace

std::string provenance_text(const plan::PlanView& plan) {
  constexpr size_t kWidest = 400;
  std::string out;
  const auto line = [&](std::string_view key, const std::string& value) {
    if (!value.empty()) out += fmt::format("{:<12} {}\n", key, printable(value, kWidest));
  };
  const auto and_more = [](std::string text, const char* between, const std::string& more) {
    if (more.empty()) return text;
    return text.empty() ? more : text + between + more;
  };
  std::string model = fmt::format("{} ({})", model_name(plan), plan.facts.architecture);
  model = and_more(model, ", version ", version_of(plan));
  line("model", and_more(model, ", by ", first_of(plan, {"organization", "author"})));
  line("licence",
       and_more(first_of(plan, {"license.name", "license"}), ", ", general(plan, "license.link")));
  for (const BaseModel& base : base_models(plan)) {
    line("base model", and_more(and_more(base.name, ", by ", base.organization), ", ", base.url));
  }
  line("quantised",
       and_more(plan::quantization_name(plan), ", by ", general(plan, "quantized_by")));
  line("source", first_of(plan, {"source.repo_url", "source.url", "repo_url", "url",
                                 "source.huggingface.repository"}));
  line("plan",
       fmt::format("format {}.{}, hash {}{}", plan::kMajor, plan.minor, to_hex(plan.identity),
                   plan.facts.lossy ? ", weights rounded by a rule" : ""));
  for (const std::string& adapter : plan.facts.merged) line("merged", adapter);
  line("made by", "ktx " + plan.provenance.ktx_version);
  for (const plan::PlanProvenance::Input& input : plan.provenance.inputs) {
    line("from", fmt::format("{} of {} bytes, hash{} {}", input.what, input.size_bytes,
                             input.what == "gguf" ? " of its header" : "", to_hex(input.hash)));
  }
  for (const std::string& option : plan.provenance.options) line("option", option);
  return out;
}

std::string provenance_json(const plan::PlanView& plan) {
  Json json = Json::parse(plan::to_json(plan.provenance));
  json["name"] = model_name(plan);
  json["architecture"] = plan.facts.architecture;
  json["quantization"] = plan::quantization_name(plan);
  json["rounded"] = plan.facts.lossy;
  json["merged"] = plan.facts.merged;
  json["hash"] = to_hex(plan.identity);
  json["format"] = fmt::format("{}.{}", plan::kMajor, plan.minor);
  return dump(json);
}

std::string cyclonedx_json(const plan::PlanView& plan, const std::string& sha256) {
  Json model = {{"type", "machine-learning-model"}, {"bom-ref", "plan"}};
  if (const std::string maker = first_of(plan, {"organization", "author"}); !maker.empty()) {
    model["supplier"] = {{"name", maker}};
  }
  model["name"] = model_name(plan);
  if (const std::string version = version_of(plan); !version.empty()) model["version"] = version;
  if (const std::string text = general(plan, "description"); !text.empty()) {
    model["description"] = text;
  }
  model["hashes"] = Json::array({{{"alg", "SHA-256"}, {"content", sha256}}});
  if (Json all = licences(plan); !all.is_null()) model["licenses"] = std::move(all);
  if (Json ancestors = ancestors_of(plan); !ancestors.empty()) {
    model["pedigree"] = {{"ancestors", std::move(ancestors)}};
  }
  const std::string source = first_of(plan, {"source.repo_url", "source.url", "repo_url", "url"});
  if (!source.empty()) {
    model["externalReferences"] = Json::array({{{"type", "website"}, {"url", source}}});
  }
  model["modelCard"] = {{"modelParameters",
                         {{"architectureFamily", plan.facts.architecture},
                          {"modelArchitecture", plan.facts.family}}}};
  model["properties"] = properties_of(plan);

  const Json inputs = inputs_of(plan);
  Json refs = Json::array();
  for (const Json& input : inputs) refs.push_back(input["bom-ref"]);
  const Json compiler = {
      {"type", "application"}, {"name", "ktx-compile"}, {"version", plan.provenance.ktx_version}};
  return dump(
      {{"$schema", "http://cyclonedx.org/schema/bom-1.6.schema.json"},
       {"bomFormat", "CycloneDX"},
       {"specVersion", "1.6"},
       {"version", 1},
       {"metadata", {{"tools", {{"components", Json::array({compiler})}}}, {"component", model}}},
       {"components", inputs},
       {"dependencies", Json::array({{{"ref", "plan"}, {"dependsOn", refs}}})}});
}

}  // namespace ktx::trust
