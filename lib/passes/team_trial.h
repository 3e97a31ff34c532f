// Kinds of parts that several GPUs compute together, and the predictions for a placement with some
// of them divided.
#pragma once

#include <bitset>
#include <string>
#include <vector>

#include "lib/ir/module_graph.h"
#include "lib/passes/stream_trial.h"

namespace ktx::passes {

enum class DividedKind { Attention, States, FeedForward, Experts, Head };
inline constexpr size_t kDividedKinds = 5;
using DividedKinds = std::bitset<kDividedKinds>;
inline const DividedKinds kAllDivided = DividedKinds().set();

// The kind of a unit (lower/divided_units.h), or of a stack of experts.
DividedKind kind_of_unit(const ir::Module& unit);
// "attention, experts"; "nothing".
std::string names_of(const DividedKinds& kinds);

struct TeamTrial {
  DividedKinds kinds;
  ConversationTime time;
  bool chosen = false;
};

// "cuda:0, cuda:1 do not compute layers together: ..." with the figures; "" where some are divided,
// or nothing was compared.
std::string team_refusal(const std::vector<TeamTrial>& trials);
// A table of what was compared; "" where nothing was.
std::string team_table(const std::vector<TeamTrial>& trials);

}  // namespace ktx::passes
