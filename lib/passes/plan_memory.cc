// Liveness analysis: shares the arena between values whose lifetimes do not overlap.
//
// A value lives from the stage that first writes it to the last that names it, since
// the steps of a stage run side by side. Buffers are formulas (bytes per token, per
// logits row, or fixed), so values of one row kind and device share: stages are walked
// in order, a dying value's buffer returns to its kind's free list, and a new value
// takes the free buffer that grows least. Every layer then runs in the same few buffers.
//
// A part of the CPU that runs beside a GPU's (deferred experts) gets no buffer that this GPU may
// still fetch: a value that a GPU fetches lives on until the CPU waits for later values of a GPU.
//
// GPUs that compute a layer together add up what all of them have (all_reduce) and go on: one may
// still read a part that the one beside it has added. So a part lives until the next sum, for which
// each waits until all have come.
//
// The queues of several GPUs do not wait for each other where no value goes from one to the
// other. So a value that one of them fetches from the CPU lives on until the CPU, which waits
// for all of them, computes again: another GPU could write its memory before it is fetched.
#include <algorithm>
#include <map>
#include <set>

#include "lib/passes/pass.h"
#include "lib/program/find_fused.h"
#include "lib/program/parts.h"
#include "lib/program/program.h"
#include "lib/program/stages.h"
#include "lib/target/host_device.h"

namespace ktx::passes {
namespace {

struct Lifetime {  // in stages
  int first = -1;
  int last = -1;
};

std::vector<Lifetime> lifetimes(const program::Program& program, const std::vector<Stage>& stages) {
  std::vector<Lifetime> lives(program.values.size());
  for (int stage = 0; stage < static_cast<int>(stages.size()); ++stage) {
    const auto touch = [&](const program::View& view) {
      if (view.value == program::kAbsent) return;
      Lifetime& life = lives[view.value];
      if (life.first < 0) life.first = stage;
      life.last = stage;
    };
    const auto touch_all = [&](int32_t index) {
      const program::Step& step = program.steps[index];
      std::for_each(step.inputs.begin(), step.inputs.end(), touch);
      std::for_each(step.outputs.begin(), step.outputs.end(), touch);
    };
    for (int32_t index : stages[stage].prelude) touch_all(index);
    for (const auto& part : stages[stage].parts) {
      std::for_each(part.begin(), part.end(), touch_all);
    }
  }
  return lives;
}

// Hosts with more than one.
std::set<std::string_view> hosts_of_several_gpus(const program::Program& program) {
  std::map<std::string_view, std::set<std::string_view>> gpus;
  for (const program::Step& step : program.steps) {
    if (!target::is_cpu(step.device)) gpus[target::host_of(step.device)].insert(step.device);
  }
  std::set<std::string_view> hosts;
  for (const auto& [host, own] : gpus) {
    if (own.size() > 1) hosts.insert(host);
  }
  return hosts;
}

// Values that GPUs fetch from the CPU live on in stages of the CPU that do not wait for what a GPU
// gives later, and of several GPUs in the next one that does.
void extend_fetched(const program::Program& program, const program::CpuWaits& waits,
                    const std::vector<Stage>& stages, const std::vector<std::string>& devices,
                    std::vector<Lifetime>& lives) {
  struct Fetched {
    program::ValueId value;
    int32_t runs;  // of transfers to the CPU that have begun before
  };
  const std::set<std::string_view> several = hosts_of_several_gpus(program);
  std::map<std::string_view, std::vector<Fetched>> by_host;
  for (int stage = 0; stage < static_cast<int>(stages.size()); ++stage) {
    const auto look_at = [&](int32_t index) {
      const program::Step& step = program.steps[index];
      const std::string_view host = target::host_of(step.device);
      std::vector<Fetched>& fetched = by_host[host];
      if (step.op != StepOp::Transfer && target::is_cpu(step.device)) {
        std::erase_if(fetched, [&](const Fetched& f) {
          const bool over = waits.run[index] > f.runs;
          if (several.contains(host) || !over)
            lives[f.value].last = std::max(lives[f.value].last, stage);
          return over;
        });
      } else if (step.op == StepOp::Transfer && !target::is_cpu(step.device) &&
                 devices[step.inputs[0].value] == target::cpu_beside(step.device)) {
        fetched.push_back({step.inputs[0].value, waits.before[index]});
      }
    };
    for (int32_t index : stages[stage].prelude) look_at(index);
    for (const auto& part : stages[stage].parts) std::for_each(part.begin(), part.end(), look_at);
  }
  for (const std::string_view host : several) {
    for (const Fetched& f : by_host[host]) {
      lives[f.value].last = static_cast<int>(stages.size()) - 1;
    }
  }
}

// The parts of a sum over GPUs live until the next sum, and from the last one on: so the steps that
// make a part write no buffer that they read, and may be one launch (lib/program/find_fused.h).
void extend_parts(const program::Program& program, const std::vector<Stage>& stages,
                  std::vector<Lifetime>& lives) {
  std::vector<program::View> parts;  // of the last sum
  int behind = 0;                    // the stage behind that
  const auto extend_to = [&](int stage) {
    for (const program::View& part : parts) {
      if (part.value == program::kAbsent) continue;
      lives[part.value].last = std::max(lives[part.value].last, stage);
    }
  };
  for (int stage = 0; stage < static_cast<int>(stages.size()); ++stage) {
    for (const auto& side_by_side : stages[stage].parts) {
      for (int32_t index : side_by_side) {
        const program::Step& step = program.steps[index];
        if (step.op != StepOp::AllReduce) continue;
        if (step.inputs != parts) {
          extend_to(stage);
          parts = step.inputs;
          for (const program::View& part : parts) {
            if (part.value == program::kAbsent) continue;
            int& first = lives[part.value].first;
            first = std::min(first, behind);
          }
        }
        behind = stage + 1;
      }
    }
  }
  extend_to(static_cast<int>(stages.size()) - 1);
}

// What a drafter reads of the pass stays until its end.
void extend_taps(const CompileState& state, size_t stages, std::vector<Lifetime>& lives) {
  for (size_t tap = 0; tap < state.taps.size(); ++tap) {
    for (size_t id = 0; id < lives.size(); ++id) {
      if (state.program.values[id].name == tap_value(tap)) {
        lives[id].last = static_cast<int>(stages) - 1;
      }
    }
  }
}

// The hidden states that embeddings are made of, which the head reads, are there to the end.
void extend_hidden(const program::Program& program, size_t stages, std::vector<Lifetime>& lives) {
  const size_t head = program.head();
  if (head == program.steps.size()) return;
  const program::ValueId hidden = program.input(head, 0);
  if (hidden != program::kAbsent) lives[hidden].last = static_cast<int>(stages) - 1;
}

// The field of the formula that a row kind fills.
uint64_t& bytes_of(program::Buffer& buffer, RowKind rows) {
  return rows == RowKind::Token    ? buffer.bytes_per_token
         : rows == RowKind::Output ? buffer.bytes_per_output
                                   : buffer.fixed_bytes;
}

void share_buffers(program::Program& program, const std::vector<std::string>& devices,
                   const std::vector<Lifetime>& lives, size_t stages) {
  program.buffers.clear();
  for (program::Value& value : program.values) value.buffer = program::kAbsent;
  std::vector<std::vector<program::ValueId>> born(stages), dead(stages);
  for (program::ValueId id = 0; id < static_cast<program::ValueId>(lives.size()); ++id) {
    if (lives[id].first < 0) continue;
    born[lives[id].first].push_back(id);
    dead[lives[id].last].push_back(id);
  }
  std::map<std::pair<std::string, RowKind>, std::vector<int32_t>> free_buffers;
  for (size_t i = 0; i < stages; ++i) {
    for (program::ValueId id : born[i]) {
      program::Value& value = program.values[id];
      const auto need = static_cast<uint64_t>(program::row_bytes(value));
      auto& free = free_buffers[{devices[id], value.rows}];
      const auto growth = [&](int32_t buffer) {
        return need - std::min(need, bytes_of(program.buffers[buffer], value.rows));
      };
      const auto best = std::min_element(free.begin(), free.end(), [&](int32_t a, int32_t b) {
        const auto waste = [&](int32_t n) {
          return std::pair(growth(n), bytes_of(program.buffers[n], value.rows));
        };
        return waste(a) < waste(b);
      });
      if (best == free.end()) {
        value.buffer = static_cast<int32_t>(program.buffers.size());
        program.buffers.emplace_back();
      } else {
        value.buffer = *best;
        free.erase(best);
      }
      uint64_t& bytes = bytes_of(program.buffers[value.buffer], value.rows);
      bytes = std::max(bytes, need);
    }
    for (program::ValueId id : dead[i]) {
      free_buffers[{devices[id], program.values[id].rows}].push_back(program.values[id].buffer);
    }
  }
}

// Steps that a GPU may compute in one launch, which runs at the place of the last one
// (lib/program/find_fused.h), if the buffers of their values allow it.
class Groups {
 public:
  // Each value has a buffer of its own.
  Groups(const program::Program& program, const std::vector<Stage>& stages)
      : uses_(program), parts_(program::cut_parts(program)), stage_of_(program.steps.size()) {
    wanted_ = find(program);
    for (int stage = 0; stage < static_cast<int>(stages.size()); ++stage) {
      for (int32_t index : stages[stage].prelude) stage_of_[index] = stage;
      for (const auto& part : stages[stage].parts) {
        for (int32_t index : part) stage_of_[index] = stage;
      }
    }
  }

  // For groups that buffers keep apart: what their steps read from others lives until the last step
  // of the group, and what they write for others has memory from its first step on; with two
  // launches, what they write for each other has it throughout. False: nothing changed.
  bool extend(const program::Program& program, std::vector<Lifetime>& lives) const {
    const std::map<std::vector<int32_t>, FusedOp> found = find(program);
    bool some = false;
    for (const auto& [steps, op] : wanted_) {
      if (found.contains(steps)) continue;
      some |= extend(program, steps, info(op).launches > 1, lives);
    }
    return some;
  }

 private:
  std::map<std::vector<int32_t>, FusedOp> find(const program::Program& program) const {
    std::map<std::vector<int32_t>, FusedOp> found;
    for (const program::Part& part : parts_) {
      if (part.kind != program::Part::Kind::Gpu) continue;
      for (program::FusedGroup& group :
           program::find_fused(program, uses_, part.first_step, part.step_count)) {
        found.emplace(std::move(group.steps), group.op);
      }
    }
    return found;
  }

  bool extend(const program::Program& program, const std::vector<int32_t>& steps, bool two_launches,
              std::vector<Lifetime>& lives) const {
    const int first = stage_of_[steps.front()], last = stage_of_[steps.back()];
    const auto is_member = [&](int32_t i) {
      return std::binary_search(steps.begin(), steps.end(), i);
    };
    bool some = false;
    for (int32_t i : steps) {
      for (const program::View& in : program.steps[i].inputs) {
        if (in.value == program::kAbsent || lives[in.value].last >= last) continue;
        if (std::ranges::all_of(uses_.writers[in.value], is_member)) continue;
        lives[in.value].last = last;
        some = true;
      }
      for (const program::View& out : program.steps[i].outputs) {
        Lifetime& life = lives[out.value];
        const bool inner = std::ranges::all_of(uses_.readers[out.value], is_member);
        if (inner && !two_launches) continue;
        const int end = inner ? std::max(life.last, last) : life.last;
        if (life.first <= first && life.last == end) continue;
        life.first = std::min(life.first, first);
        life.last = end;
        some = true;
      }
    }
    return some;
  }

  program::Uses uses_;
  std::vector<program::Part> parts_;
  std::vector<int> stage_of_;
  std::map<std::vector<int32_t>, FusedOp> wanted_;
};

}  // namespace

Status plan_memory(CompileState& state) {
  program::Program& program = state.program;
  const std::vector<Stage> stages = program::stages_of(program);
  const std::vector<std::string> devices = program::value_devices(program);
  std::vector<Lifetime> lives = lifetimes(program, stages);
  extend_fetched(program, program::find_cpu_waits(program), stages, devices, lives);
  extend_parts(program, stages, lives);
  extend_taps(state, stages.size(), lives);
  extend_hidden(program, stages.size(), lives);
  for (size_t id = 0; id < program.values.size(); ++id) {
    program.values[id].buffer = static_cast<int32_t>(id);
  }
  const Groups groups(program, stages);
  do {
    share_buffers(program, devices, lives, stages.size());
  } while (groups.extend(program, lives));
  return {};
}

}  // namespace ktx::passes
