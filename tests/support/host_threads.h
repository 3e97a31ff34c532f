// The hosts of a run as threads of this process (lib/runtime/hosts/thread_network.h).
//
//   HostThreads hosts(plan, 2);
//   options.hosts = hosts.first();
//   auto engine = runtime::Engine::open(plan, options);
//
// The engine is closed before the hosts end.
#pragma once

#include <algorithm>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "lib/runtime/engine/engine.h"
#include "lib/runtime/gpu/gpu.h"
#include "lib/runtime/hosts/follow_host.h"
#include "lib/runtime/hosts/host_group.h"
#include "lib/runtime/hosts/thread_network.h"

namespace ktx::testing {

class HostThreads {
 public:
  // `plans`: of each rank, the last one of all others. `reserved`: bytes that the others keep;
  // `open_gpu`: their GPUs.
  HostThreads(std::vector<std::string> plans, int ranks, const runtime::HostTimes& times = {},
              uint64_t reserved = 0, const runtime::OpenGpu& open_gpu = {}) {
    runtime::EngineOptions options;
    options.threads = 1;
    options.reserved_bytes = reserved;
    options.open_gpu = open_gpu;
    for (auto& end : runtime::make_thread_network(ranks)) {
      ends_.push_back(end.get());
      groups_.push_back(runtime::HostGroup::start(std::move(end), times));
    }
    ends_of_.resize(static_cast<size_t>(ranks));
    for (size_t rank = 1; rank < groups_.size(); ++rank) {
      const std::string plan = plans[std::min(rank, plans.size() - 1)];
      // The thread has the group alone, which ends with it.
      threads_.emplace_back(
          [this, rank, plan, options, group = std::move(groups_[rank])]() mutable {
            const Status followed = runtime::follow_host(*group, plan, options);
            ends_of_[rank] = followed ? "" : followed.error().message;
            group.reset();
          });
    }
  }
  HostThreads(const std::string& plan, int ranks, const runtime::OpenGpu& open_gpu = {})
      : HostThreads(std::vector{plan}, ranks, {}, 0, open_gpu) {}
  ~HostThreads() { end(); }

  std::shared_ptr<runtime::HostGroup> first() const { return groups_[0]; }
  // As if the host were gone.
  void cut(int rank) { runtime::cut_thread_network(*ends_[static_cast<size_t>(rank)]); }
  // The first host leaves, and so all end; the error of a rank, "" where it ended in order.
  void end() {
    groups_[0].reset();
    for (std::thread& thread : threads_) thread.join();
    threads_.clear();
  }
  const std::string& end_of(int rank) const { return ends_of_[static_cast<size_t>(rank)]; }

 private:
  std::vector<std::shared_ptr<runtime::HostGroup>> groups_;
  std::vector<runtime::Network*> ends_;
  std::vector<std::string> ends_of_;
  std::vector<std::thread> threads_;
};

}  // namespace ktx::testing
