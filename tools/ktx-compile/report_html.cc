// First whether the model fits, and how fast it is; then memory of each device as a stacked bar,
// speeds as a table, the model as layers x modules, coloured by device and marked by form; the
// rules with their coverage; the diagnostics.
//
// Plain HTML and CSS; wide parts scroll by themselves, so the page also works on a phone.
#include "tools/ktx-compile/report_html.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "lib/passes/cost/estimate_text.h"
#include "lib/passes/cost/module_bytes.h"
#include "lib/passes/lint/rule_report.h"
#include "lib/passes/lower/deferred_experts.h"
#include "lib/passes/placement/next_move.h"
#include "lib/support/escape_html.h"
#include "lib/support/strings.h"
#include "tools/ktx-compile/coverage.h"
#include "tools/ktx-compile/kernel_rows.h"
#include "tools/ktx-compile/rate_text.h"

namespace ktx::tools {
namespace {

// Hues far apart, each with the colour of text that can be read on it; "cpu" is grey.
struct Color {
  const char* back;
  const char* text;
};
constexpr Color kColors[] = {{"#4477aa", "#fff"}, {"#ee6677", "#000"}, {"#228833", "#fff"},
                             {"#ccbb44", "#000"}, {"#66ccee", "#000"}, {"#aa3377", "#fff"},
                             {"#ee8866", "#000"}, {"#44bb99", "#000"}};
constexpr Color kCpuColor = {"#9a9a9a", "#000"};

constexpr const char* kStyle = R"css(
:root{color-scheme:light dark}
body{font:15px/1.45 system-ui,sans-serif;margin:0 auto;max-width:75rem;padding:1rem}
h1{font-size:1.4rem;margin:.2rem 0}h2{font-size:1.1rem;margin:1.6rem 0 .5rem}
.scroll{overflow-x:auto;-webkit-overflow-scrolling:touch}
table{border-collapse:collapse;font-variant-numeric:tabular-nums}
td,th{padding:.15rem .45rem;text-align:right;white-space:nowrap}
th{font-weight:600}td.l,th.l{text-align:left}
tr+tr td{border-top:1px solid #8884}
.grid td{padding:0;border:1px solid #8883;min-width:1.1rem;height:1.1rem;text-align:center;font-size:.7rem}
.grid th{font-weight:400;font-size:.75rem}
.grid thead th{writing-mode:vertical-rl;transform:rotate(180deg);text-align:left;padding:.2rem 0}
.bar{display:flex;height:1.6rem;background:#8882;border-radius:.2rem;overflow:hidden;margin:.2rem 0 .7rem}
.bar span{display:block;height:100%}
.w{background:#4477aa}.k{background:#228833}.s{background:#ccbb44}.r{background:#9a9a9a}
.key span{white-space:nowrap;margin-right:.9em}
.key i{display:inline-block;width:.9em;height:.9em;border-radius:.2em;vertical-align:-.1em;margin-right:.3em}
.error{color:#c22}.warning{color:#a60}.note{color:#68a}
pre{font-size:.8rem;margin:.4rem 0}pre.text{white-space:pre-wrap;overflow-wrap:anywhere}
.verdict{border-left:.3rem solid #9a9a9a;padding:.35rem .6rem;background:#8882}
.verdict.fits{border-color:#228833}.verdict.error{border-color:#c22;color:inherit}
.none{opacity:.55}li{margin:.35rem 0;overflow-wrap:anywhere}code{font-size:.9em}
)css";

std::string escape(std::string_view text) {
  return escape_html(printable(text, 2000));
}

class Colors {
 public:
  const Color& of(const std::string& device) {
    if (device == "cpu" || device.empty()) return kCpuColor;
    const auto [found, added] = numbers_.try_emplace(device, numbers_.size());
    return kColors[found->second % std::size(kColors)];
  }

 private:
  std::map<std::string, size_t> numbers_;
};

// One letter for the form that weights take.
std::string form_letter(const ir::Module& module) {
  if (module.params.empty()) return "";
  if (module.decision.op == "marlin") return "M";
  if (module.decision.op == "dense") return "D";
  return "";
}

std::string cell(const passes::CompileState& state, const ir::Module& module, Colors& colors) {
  const int rule = module.decision.rule;
  const std::string by =
      rule >= 0 ? state.rules.label(state.rules.rules[static_cast<size_t>(rule)]) : "no rule";
  const Color& color = colors.of(module.decision.device);
  std::string device = module.decision.device;
  for (const ir::ExpertSet& set : module.decision.expert_sets) {
    device += fmt::format(", {} {} on {} ({:.0f} % of the activations)", set.count,
                          set.guests ? "slots for experts" : "experts", set.device, 100 * set.use);
  }
  if (const int32_t deferred =
          passes::deferred_steps(state.modules, module, passes::place_of(module))) {
    device += fmt::format(", {} of a token's experts deferred", deferred);
  }
  return fmt::format("<td style=\"background:{};color:{}\" title=\"{}: {}, {}, {}\">{}</td>",
                     color.back, color.text, escape(module.path), escape(device),
                     human_bytes(passes::placed_bytes(module)), escape(by), form_letter(module));
}

// Names below a layer, in the order in which layers have them.
std::vector<std::string> columns_of(const passes::CompileState& state) {
  std::vector<std::string> columns;
  for (const ir::Module& module : state.modules.modules) {
    if (module.layer < 0 || module.params.empty()) continue;
    const std::string prefix = fmt::format("model.layers.{}.", module.layer);
    if (!module.path.starts_with(prefix)) continue;
    const std::string name = module.path.substr(prefix.size());
    if (std::find(columns.begin(), columns.end(), name) == columns.end()) columns.push_back(name);
  }
  return columns;
}

std::string grid(const passes::CompileState& state, Colors& colors) {
  const std::vector<std::string> columns = columns_of(state);
  std::map<std::string, const ir::Module*> by_path;
  for (const ir::Module& module : state.modules.modules) by_path[module.path] = &module;
  std::string out = "<div class=scroll><table class=grid><thead><tr><th></th>";
  for (const std::string& column : columns) out += fmt::format("<th>{}</th>", escape(column));
  out += "</tr></thead><tbody>\n";
  for (int32_t layer = 0; layer < state.modules.facts.layers; ++layer) {
    out += fmt::format("<tr><th>{}</th>", layer);
    for (const std::string& column : columns) {
      const auto found = by_path.find(fmt::format("model.layers.{}.{}", layer, column));
      out += found == by_path.end() ? "<td></td>" : cell(state, *found->second, colors);
    }
    out += "</tr>\n";
  }
  for (const ir::Module& module : state.modules.modules) {
    if (module.layer >= 0 || module.params.empty()) continue;
    out +=
        fmt::format("<tr><th>{}</th>{}</tr>\n", escape(module.path), cell(state, module, colors));
  }
  return out + "</tbody></table></div>\n";
}

std::string preformatted(const char* style, const std::string& text) {
  std::string lines;
  for (std::string_view line : split(text, '\n')) lines += escape(line) + "\n";
  return fmt::format("<pre class={}>{}</pre>\n", style, lines);
}

std::string bars(const passes::Estimate& estimate) {
  std::string out;
  for (const passes::DeviceUse& use : estimate.devices) {
    const uint64_t whole = std::max<uint64_t>({use.capacity, use.total(), 1});
    const auto part = [&](const char* name, const char* title, uint64_t bytes) {
      return fmt::format("<span class={} style=\"width:{:.3f}%\" title=\"{} {}\"></span>", name,
                         100.0 * static_cast<double>(bytes) / static_cast<double>(whole), title,
                         human_bytes(bytes));
    };
    std::string room =
        use.capacity == 0  ? "its memory is not known"
        : use.needs_disk() ? human_bytes(use.total() - use.capacity) + " of experts on disk"
        : use.too_small()
            ? fmt::format("<b class=error>{} too much</b>", human_bytes(use.total() - use.capacity))
            : fmt::format("{} left", human_bytes(use.capacity - use.total()));
    out += fmt::format("<div><b>{}</b>: {}{}, {}</div><div class=bar>{}{}{}{}</div>\n",
                       escape(use.name), human_bytes(use.total()),
                       use.capacity ? " of " + human_bytes(use.capacity) : "", room,
                       part("w", "weights", use.weight_bytes),
                       part("k", "keys and values", use.kv_bytes + use.state_bytes),
                       part("s", "scratch", use.scratch_bytes + use.stream_bytes),
                       part("r", "reserve", use.reserve_bytes));
  }
  out +=
      "<p class=key><span><i class=w></i>weights</span> <span><i class=k></i>keys and "
      "values</span> "
      "<span><i class=s></i>scratch</span> <span><i class=r></i>reserve</span></p>\n";
  return out + preformatted("scroll", passes::estimate_table(estimate)) +
         preformatted("text", passes::memory_notes(estimate));
}

// The answer to what the page was made for.
std::string verdict(const passes::CompileState& state, const passes::Estimate& estimate) {
  std::vector<std::string> small, fitting;
  bool known = !estimate.devices.empty();
  for (const passes::DeviceUse& use : estimate.devices) {
    known = known && use.capacity > 0;
    const std::string name = escape(use.name), needed = human_bytes(use.total()),
                      memory = human_bytes(use.capacity);
    if (use.needs_disk()) {
      fitting.push_back(fmt::format("{} {} of {}, {} of experts on disk", name, memory, needed,
                                    human_bytes(use.total() - use.capacity)));
    } else if (use.too_small()) {
      small.push_back(fmt::format("{} needs {} and has {}", name, needed, memory));
    } else {
      fitting.push_back(fmt::format("{} {} of {}", name, needed, memory));
    }
  }
  std::string kind = "note", text = "Whether it fits is not known without a --target.";
  if (!small.empty()) {
    kind = "error";
    text = fmt::format("<b>It does not fit</b>: {}.", join(small, ", "));
  } else if (known) {
    kind = "fits";
    text = fmt::format("<b>It fits</b>: {}.", join(fitting, ", "));
  }
  if (const int errors = state.diags->errors(); errors > 0 && small.empty()) {
    kind = "error";
    text = fmt::format("<b>The rules have {}.</b> ", passes::count_of(errors, "error")) + text;
  }
  if (estimate.token.known && small.empty()) {
    text += fmt::format(" Predicted: {} tokens/s in decode", rate_text(1, estimate.token.seconds));
    if (estimate.chunk.known) {
      text += fmt::format(
          ", {} in long prompts",
          rate_text(static_cast<double>(estimate.chunk.tokens), estimate.chunk.seconds));
    }
    text += ".";
  }
  return fmt::format("<p class=\"verdict {}\">{}</p>\n", kind, text);
}

// "cpu 12.20 ms (1.10 GiB at 97 GB/s), cuda:0 1.10 ms (...), 96 hand-overs 1.54 ms"
std::string terms(const passes::ForwardTime& time) {
  std::vector<std::string> parts;
  for (const passes::DeviceTime& d : time.devices) {
    parts.push_back(fmt::format("{} {:.2f} ms ({} at {:.4g} GB/s, {})", escape(d.device),
                                d.seconds * 1e3, human_bytes(d.read_bytes), d.rates.read / 1e9,
                                d.rates.read_measured ? "measured" : "rated"));
  }
  const auto add = [&](int64_t count, const char* noun, double seconds) {
    if (count == 0) return;
    parts.push_back(fmt::format("{} {:.2f} ms", passes::count_of(static_cast<int>(count), noun),
                                seconds * 1e3));
  };
  add(time.hand_overs, "hand-over", time.hand_over_seconds);
  add(time.messages, "message", time.network_seconds);
  if (time.disk_bytes > 0) {
    parts.push_back(fmt::format("disk {:.2f} ms ({} of experts)", time.disk_seconds * 1e3,
                                human_bytes(time.disk_bytes)));
  }
  if (time.beside_seconds > 0) {
    parts.push_back(fmt::format("-{:.2f} ms both at once", time.beside_seconds * 1e3));
  }
  return join(parts, ", ");
}

std::string speeds(const passes::Estimate& estimate) {
  if (!estimate.token.known) return "<p>Not known without the bandwidth of a --target.</p>\n";
  std::string out =
      "<div class=scroll><table><tr><th class=l>predicted<th>tokens/s<th>a pass<th class=l></tr>\n";
  const auto row = [&](const std::string& what, const passes::ForwardTime& time, double more) {
    const double seconds = time.seconds + more;
    out += fmt::format("<tr><td class=l>{}<td>{}<td>{:.2f} ms<td class=l>{}{}</tr>\n", what,
                       rate_text(static_cast<double>(time.tokens), seconds), seconds * 1e3,
                       terms(time),
                       more > 0 ? fmt::format(", {:.2f} ms keys and values", more * 1e3) : "");
  };
  row("decode, one sequence, at first", estimate.token, 0);
  row(fmt::format("behind {} tokens", estimate.shape.ctx), estimate.token, estimate.cache_seconds);
  if (estimate.short_chunk.known && estimate.short_chunk.tokens < estimate.chunk.tokens) {
    row(fmt::format("prompts of {}", estimate.short_chunk.tokens), estimate.short_chunk, 0);
  }
  if (estimate.chunk.known) {
    row(fmt::format("long prompts, {} at a time", estimate.chunk.tokens), estimate.chunk, 0);
  }
  const std::string trials = passes::trials_table(estimate.stream_trials);
  return out + "</table></div>\n" + (trials.empty() ? "" : preformatted("scroll", trials));
}

std::string selects(const rules::Match& match) {
  std::vector<std::string> parts;
  if (match.name) parts.push_back(match.name->text);
  if (match.class_name) parts.emplace_back(rules::last_part(match.class_name->text));
  if (match.kind_text) parts.push_back("kind " + match.kind_text->text);
  if (!match.layers.empty()) parts.emplace_back("some layers");
  return join(parts, ", ");
}

// What a phone shows without scrolling comes first, the long patterns last.
std::string rules_table(const passes::CompileState& state) {
  std::string out =
      "<div class=scroll><table><tr><th>rule<th class=l>device<th class=l>op<th>wins<th>loses"
      "<th>bytes<th class=l>matches</tr>\n";
  for (size_t file = 0; file < state.rules.files.size(); ++file) {
    out += fmt::format("<tr><th class=l colspan=7>{}</tr>\n", escape(state.rules.files[file].path));
    for (size_t i = 0; i < state.rules.rules.size(); ++i) {
      const rules::Rule& rule = state.rules.rules[i];
      if (rule.file != static_cast<int>(file)) continue;
      const rules::RuleOutcome& outcome = state.matched.outcomes[i];
      const bool wins = outcome.verdict == rules::Verdict::Wins;
      const std::string id = rule.id ? escape(rule.id->text) + ": " : "";
      out += fmt::format(
          "<tr{}><td title=\"line {}\">{}<td class=l>{}<td class=l>{}<td>{}<td>{}<td>{}"
          "<td class=l>{}{}<code>{}</code></tr>\n",
          wins ? "" : " class=none", rule.loc.line, rule.number,
          rule.replace.place ? escape(rules::to_string(*rule.replace.place)) : "",
          rule.replace.op ? escape(rule.replace.op->text) : "", outcome.won, outcome.lost,
          human_bytes(bytes_of_rule(state, static_cast<int>(i))), id,
          wins ? "" : fmt::format("<b>{}</b>: ", escape(rules::name(outcome.verdict))),
          escape(selects(rule.match)));
    }
  }
  return out + "</table></div>\n";
}

std::string kernels_table(const program::Program& steps, const target::Target& target) {
  std::string out =
      "<div class=scroll><table><tr><th class=l>device<th class=l>op<th>places<th>tokens"
      "<th class=l>kernel<th class=l></tr>\n";
  for (const KernelRow& row : kernel_rows(steps, target)) {
    out += fmt::format(
        "<tr><td class=l>{}<td class=l>{}<td>{}<td>{}<td class=l>{}<td class=l>{}</tr>\n",
        escape(row.device), escape(row.op), row.places, escape(row.tokens), escape(row.kernel),
        escape(row.conditions));
  }
  return out + "</table></div>\n";
}

std::string diagnostics(const DiagSink& sink) {
  constexpr const char* kNames[] = {"note", "warning", "error"};
  std::string out = "<ul>\n";
  for (const Diagnostic& diag : sink.all()) {
    const char* severity = kNames[static_cast<int>(diag.severity)];
    const std::string place =
        diag.loc.file.empty() ? "" : fmt::format("{}:{}: ", escape(diag.loc.file), diag.loc.line);
    out += fmt::format("<li>{}<b class={}>{}</b>: {}{}", place, severity, severity,
                       escape(diag.message),
                       diag.code.empty() ? "" : fmt::format(" [KTX-{}]", escape(diag.code)));
    for (const DiagNote& note : diag.notes) out += fmt::format("<br>{}", escape(note.text));
    out += "</li>\n";
  }
  return out + "</ul>\n";
}

}  // namespace

std::string report_html(const passes::CompileState& state, const program::Program* steps) {
  const ir::ModelFacts& facts = state.modules.facts;
  Colors colors;
  const std::string model = facts.name.empty() ? facts.family : facts.name;
  std::string out = fmt::format(
      "<!doctype html>\n<html lang=en><head><meta charset=utf-8><meta name=viewport "
      "content=\"width=device-width,initial-scale=1\"><title>ktx: {0}</title><style>{1}</style>"
      "</head><body>\n<h1>{0}</h1><p>{2}, {3} layers; {4} modules, {5} without a rule; "
      "<a href=\"#diagnostics\">{6}, {7}</a></p>\n",
      escape(model), kStyle, escape(facts.family), facts.layers, state.matched.modules,
      state.matched.without_rule, passes::count_of(state.diags->errors(), "error"),
      passes::count_of(state.diags->warnings(), "warning"));
  const std::string modules = grid(state, colors);
  const auto estimate = passes::estimate_of(state);
  std::string key = "<p class=key>";
  if (estimate) {
    out += verdict(state, *estimate) + "<h2>Memory</h2>\n" + bars(*estimate) +
           preformatted("text", passes::next_best_move(state, *estimate)) + "<h2>Speed</h2>\n" +
           speeds(*estimate);
    for (const passes::DeviceUse& use : estimate->devices) {
      key += fmt::format("<span><i style=\"background:{}\"></i>{}</span> ",
                         colors.of(use.name).back, escape(use.name));
    }
  }
  out +=
      fmt::format("<h2>Modules</h2>\n{}<span>M: Marlin tiles</span> <span>D: dense</span></p>\n{}",
                  key, modules);
  if (!state.rules.empty()) out += "<h2>Rules</h2>\n" + rules_table(state);
  if (steps) out += "<h2>Kernels</h2>\n" + kernels_table(*steps, state.target);
  if (!state.diags->all().empty())
    out += "<h2 id=diagnostics>Diagnostics</h2>\n" + diagnostics(*state.diags);
  return out + "</body></html>\n";
}

}  // namespace ktx::tools
