// Guests: experts of the CPU that are on a GPU as well, as long as they are used more than others.
//
//   layer 3   128 experts in main memory, 32 slots on cuda:0
//   a token's experts 4 17 99: 17 is a guest, and the GPU computes it; 4 and 99 the CPU, meanwhile
//
// Where an expert is computed is a table of each of the two group_experts steps of a layer
// (kernels/router/expert_places.h): the mechanism of experts that are divided for good, but here
// the tables change, between two passes and never within one. So an expert is in one of the two
// sums of a pass, and both are added as ever: the GPU's first.
//
// Which experts come. Every use of an expert counts (use_counts.h), wherever it was computed. The
// price of a move is the CPU's: the copy reads an expert's bytes from main memory twice and writes
// them once, as long as three uses take there, and what it saves are the uses that the guest has
// more than the one that leaves, over about the tokens that counts remember. So an expert comes
// where its count is larger than the least one of a guest's by ExpertGuestOptions::least_gain,
// whatever the rates of the machine are. No pass waits for a copy to arrive: the CPU computes the
// expert until it is there (gpu/guest_copies.h).
//
// Answers. A GPU rounds an expert's inputs to F16, a CPU to 8 bits (in fast precision), and the
// two sums of a token are added in another order. Answers hence depend on what ran before, within
// the rounding of the two devices; ktx-compile --strict-numerics refuses slots.
//
// Passes in which a GPU streams all experts of the CPU (gpu/expert_streams.h) count none.
//
// count() is called within a pass, by one thread at a time; profile(), prefer() and use() by any;
// the others between two passes.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "lib/plan/expert_profile.h"
#include "lib/plan/plan_reader.h"
#include "lib/runtime/experts/expert_guest_use.h"
#include "lib/runtime/experts/use_counts.h"

namespace ktx::runtime {

inline constexpr uint64_t kMostGuestBytes = 64 << 20;  // of all copies on their way to a GPU

struct ExpertGuestOptions {
  double least_gain = 4;  // uses; below 0 others come in every pass
  int64_t at_once = 8;    // copies on their way, at most
};

// A weight of an expert that has to be on the GPU: a matrix, made into tiles, or a row of floats.
struct GuestWeight {
  program::BlobId from = program::kAbsent, to = program::kAbsent;  // the CPU's, the GPU's
  bool product = false;
  uint64_t from_bytes = 0, to_bytes = 0;  // of one expert
  int64_t strips = 0;                     // of one expert's matrix
};

// One layer's guests. Experts are numbered as by the router.
struct GuestLayer {
  GuestLayer(int64_t slots, int64_t experts);

  int32_t slots() const { return static_cast<int32_t>(expert_in.size()); }
  int32_t experts() const { return static_cast<int32_t>(slot_of.size()); }

  int32_t layer = 0;                           // of the model
  std::string device;                          // "cuda:0"
  uint32_t cpu_step = 0, gpu_step = 0;         // group_experts
  program::BlobId cpu_blob = 0, gpu_blob = 0;  // their places
  std::vector<GuestWeight> weights;
  std::vector<int32_t> home;                  // matrix of the CPU; -1: it has none
  std::vector<int32_t> slot_of, expert_in;    // -1: none
  std::vector<bool> moving;                   // experts, on their way
  std::vector<bool> awaited;                  // slots, that these are to get
  std::vector<float> cpu_places, gpu_places;  // as the steps read them
  UseCounts counts;
};

// What a plan has for a group_experts step (kernels/router/expert_places.h); empty: no places.
std::span<const float> expert_places(const plan::PlanView& plan, uint32_t step);

struct GuestMove {
  size_t layer = 0;  // among ExpertGuests::layers()
  int32_t expert = 0, slot = 0;
};

class ExpertGuests {
 public:
  // Null where no layer of the plan has guests.
  static std::unique_ptr<ExpertGuests> make(const plan::PlanView& plan,
                                            const ExpertGuestOptions& options);

  std::span<GuestLayer> layers() { return layers_; }
  // Layers whose experts stay in their slots, as nothing here copies them.
  int64_t fixed_layers() const { return fixed_layers_; }
  // The layer of a group_experts step of the CPU; null: it has no guests.
  GuestLayer* of_step(uint32_t step);
  const ExpertGuestOptions& options() const { return options_; }

  // Counts the pairs of a pass of so many tokens.
  void count(GuestLayer& layer, std::span<const int32_t> ids, int64_t tokens);

  // The moves to `device` that gain the most, one a layer at most. They are on their way until
  // enter() or drop().
  std::vector<GuestMove> choose(const std::string& device, int64_t most);
  void leave(const GuestMove& move);  // the slot's guest, if it has one, goes home
  void enter(const GuestMove& move, uint64_t bytes);
  void drop(const GuestMove& move);
  void count_failure();

  void prefer(const plan::ExpertProfile& profile);
  plan::ExpertProfile profile() const;
  ExpertGuestUse use() const;

 private:
  ExpertGuests(const plan::PlanView& plan, const ExpertGuestOptions& options)
      : options_(options), architecture_(plan.facts.architecture) {}

  const ExpertGuestOptions options_;
  const std::string architecture_;  // of the plan
  std::vector<GuestLayer> layers_;
  int64_t fixed_layers_ = 0;
  mutable std::mutex mutex_;
  ExpertGuestUse use_;
};

}  // namespace ktx::runtime
