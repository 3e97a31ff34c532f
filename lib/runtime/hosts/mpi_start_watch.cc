#include "lib/runtime/hosts/mpi_start_watch.h"

#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <string>
#include <utility>

#ifdef KTX_HAS_PMIX
#include <pmix.h>
#endif

namespace ktx::runtime {
namespace {

constexpr std::chrono::milliseconds kBetweenSigns{500};
constexpr int kSilence = 7;    // signs in a row without one of a process
constexpr int kNotBegun = 14;  // without its first one

}  // namespace

#ifdef KTX_HAS_PMIX

class MpiStartWatch::Board {
 public:
  // Null where no mpirun with PMIx has started this process.
  static std::unique_ptr<Board> open() {
    if (std::getenv("PMIX_NAMESPACE") == nullptr) return nullptr;
    std::unique_ptr<Board> board(new Board);
    if (PMIx_Init(&board->self_, nullptr, 0) != PMIX_SUCCESS) return nullptr;
    board->open_ = true;
    pmix_proc_t all;
    PMIX_LOAD_PROCID(&all, board->self_.nspace, PMIX_RANK_WILDCARD);
    pmix_value_t* size = nullptr;
    if (PMIx_Get(&all, PMIX_JOB_SIZE, nullptr, 0, &size) != PMIX_SUCCESS) return nullptr;
    board->ranks_ = static_cast<int>(size->data.uint32);
    PMIX_VALUE_RELEASE(size);
    return board;
  }
  // MPI has opened PMIx as well, and closes it at its own end.
  ~Board() {
    if (open_) PMIx_Finalize(nullptr, 0);
  }
  Board(const Board&) = delete;
  Board& operator=(const Board&) = delete;

  int rank() const { return static_cast<int>(self_.rank); }
  int ranks() const { return ranks_; }

  std::string key(int rank, const std::string& what) const {
    return std::string("ktx.") + self_.nspace + "." + std::to_string(rank) + "." + what;
  }
  void publish(const std::string& key) const {
    pmix_info_t info;
    bool yes = true;
    PMIX_INFO_LOAD(&info, key.c_str(), &yes, PMIX_BOOL);
    (void)PMIx_Publish(&info, 1);
    PMIX_INFO_DESTRUCT(&info);
  }
  // One key a call: of several, Open MPI 4 finds one.
  bool published(const std::string& key) const {
    pmix_pdata_t found;
    PMIX_PDATA_CONSTRUCT(&found);
    PMIX_LOAD_KEY(found.key, key.c_str());
    (void)PMIx_Lookup(&found, 1, nullptr, 0);
    const bool there = found.value.type == PMIX_BOOL;
    PMIX_PDATA_DESTRUCT(&found);
    return there;
  }
  void end_all() const { (void)PMIx_Abort(1, "a process is missing", nullptr, 0); }

 private:
  Board() = default;
  pmix_proc_t self_ = {};
  int ranks_ = 1;
  bool open_ = false;
};

#else

class MpiStartWatch::Board {
 public:
  static std::unique_ptr<Board> open() { return nullptr; }
  int rank() const { return 0; }
  int ranks() const { return 1; }
  std::string key(int, const std::string&) const { return {}; }
  void publish(const std::string&) const {}
  bool published(const std::string&) const { return false; }
  void end_all() const {}
};

#endif

MpiStartWatch::MpiStartWatch(RanksMissing missing)
    : missing_(std::move(missing)), board_(Board::open()) {
  if (!board_ || board_->ranks() < 2) return;
  processes_.resize(static_cast<size_t>(board_->ranks()));
  thread_ = std::thread([this] { watch(); });
}

MpiStartWatch::~MpiStartWatch() {
  if (!thread_.joinable()) return;
  {
    const std::lock_guard lock(mutex_);
    started_ = true;
  }
  over_.notify_all();
  thread_.join();
  board_->publish(board_->key(board_->rank(), "over"));
}

void MpiStartWatch::watch() {
  for (int look = 0;; ++look) {
    board_->publish(board_->key(board_->rank(), std::to_string(look)));
    {
      std::unique_lock lock(mutex_);
      if (over_.wait_for(lock, kBetweenSigns, [this] { return started_; })) return;
    }
    for (int rank = 0; rank < board_->ranks(); ++rank) {
      Process& process = processes_[static_cast<size_t>(rank)];
      if (!process.over) process.over = board_->published(board_->key(rank, "over"));
      if (!board_->published(board_->key(rank, std::to_string(process.signs)))) continue;
      ++process.signs;
      process.heard = look;
    }
    const std::vector<int> lost = missing(look);
    if (lost.empty()) continue;
    // The first process that is not missing speaks, and has ended all when it returns.
    int first = 0;
    for (const int rank : lost) first += rank == first ? 1 : 0;
    if (first != board_->rank()) continue;
    missing_(lost);
    board_->end_all();
    _exit(1);
  }
}

std::vector<int> MpiStartWatch::missing(int look) const {
  std::vector<int> ranks;
  for (size_t rank = 0; rank < processes_.size(); ++rank) {
    const Process& process = processes_[rank];
    const int patience = process.signs > 0 ? kSilence : kNotBegun;
    const bool silent = !process.over && look - process.heard >= patience;
    if (!silent) continue;
    // Where its own signs do not come back, nothing is known of the others.
    if (static_cast<int>(rank) == board_->rank()) return {};
    ranks.push_back(static_cast<int>(rank));
  }
  return ranks;
}

}  // namespace ktx::runtime
