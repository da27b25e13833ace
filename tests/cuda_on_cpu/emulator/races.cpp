#include "races.h"

#include <algorithm>
#include <utility>

#include "memory.h"

namespace cuda_on_cpu {
namespace {

constexpr std::size_t kCell = 4;
constexpr std::size_t kPagesKept = 4096;  // 288 MiB of cells of 4 bytes
constexpr std::size_t kWarp = 32;

}  // namespace

void Races::begin_launch(const DeviceMemory& memory, std::vector<Range> shared) {
  memory_ = &memory;
  shared_ = std::move(shared);
  first_block_ = next_block_;  // what earlier launches did is ordered
  block_indices_.clear();
  accesses_ = 0;
  passed_on_.clear();
  if (pages_.size() > kPagesKept) pages_.clear();
  recent_ = {};  // what was no device memory may have become some
}

void Races::begin_block(std::size_t block, std::size_t threads) {
  block_ = next_block_++;
  block_indices_.push_back(block);
  epoch_ = 0;
  threads_.assign(threads, Thread{});
}

Races::Shared Races::joined(const Shared& a, const Shared& b) {
  if (a == nullptr || a == b) return b;
  if (b == nullptr) return a;
  auto result = std::make_shared<Knowledge>(*a);
  for (const auto& [block, known] : *b) {
    Known& own = (*result)[block];
    own.epoch = std::max(own.epoch, known.epoch);
    for (const auto& [thread, clock] : known.clocks) own.clocks[thread] = std::max(own.clocks[thread], clock);
  }
  return result;
}

void Races::block_barrier() {
  ++epoch_;
  Shared all;
  for (const Thread& thread : threads_) all = joined(all, joined(thread.known, thread.read));
  for (Thread& thread : threads_) {
    thread.known = all;
    thread.read = nullptr;
  }
}

void Races::warp_barrier(std::size_t first, unsigned mask) {
  std::array<std::uint32_t, kWarp> lanes{};
  Shared all;
  const std::size_t count = std::min(kWarp, threads_.size() - first);
  for (std::size_t lane = 0; lane < count; ++lane) {
    if ((mask >> lane & 1) == 0) continue;
    Thread& thread = threads_[first + lane];
    thread.lanes[lane] = thread.clock++;
    for (std::size_t l = 0; l < kWarp; ++l) lanes[l] = std::max(lanes[l], thread.lanes[l]);
    all = joined(all, joined(thread.known, thread.read));
  }
  for (std::size_t lane = 0; lane < count; ++lane) {
    if ((mask >> lane & 1) == 0) continue;
    Thread& thread = threads_[first + lane];
    thread.lanes = lanes;
    thread.known = all;
    thread.read = nullptr;
  }
}

void Races::fence(std::size_t thread) {
  Thread& own = threads_[thread];
  own.known = joined(own.known, std::exchange(own.read, nullptr));
  Known now{epoch_, {}};
  const std::size_t first = thread / kWarp * kWarp;
  for (std::size_t lane = 0; lane < kWarp; ++lane)
    if (own.lanes[lane] > 0) now.clocks[static_cast<std::uint16_t>(first + lane)] = own.lanes[lane];
  now.clocks[static_cast<std::uint16_t>(thread)] = own.clock++;
  own.fenced = joined(own.known, std::make_shared<const Knowledge>(Knowledge{{block_, std::move(now)}}));
}

void Races::pass_on(std::size_t thread, const void* address, bool reads, bool writes) {
  Thread& own = threads_[thread];
  if (reads) {
    const auto found = passed_on_.find(address);
    if (found != passed_on_.end()) own.read = joined(own.read, found->second);
    // An atomic that reads and writes hands on what it read with what is its own.
    if (writes && own.fenced != nullptr) {
      Shared& passed = passed_on_[address];
      passed = joined(passed, own.fenced);
    }
  } else if (writes) {
    passed_on_[address] = own.fenced;
  }
}

bool Races::ordered(const Access& earlier, std::size_t thread, bool is_shared) const {
  if (earlier.block < (is_shared ? block_ : first_block_)) return true;
  const Thread& own = threads_[thread];
  if (earlier.block == block_) {
    if (earlier.thread == thread || earlier.epoch < epoch_) return true;
    if (earlier.thread / kWarp == thread / kWarp && own.lanes[earlier.thread % kWarp] >= earlier.clock) return true;
  }
  if (own.known == nullptr) return false;
  const auto known = own.known->find(earlier.block);
  if (known == own.known->end()) return false;
  if (earlier.epoch < known->second.epoch) return true;
  const auto clock = known->second.clocks.find(earlier.thread);
  return clock != known->second.clocks.end() && clock->second >= earlier.clock;
}

Races::Page* Races::page_of(const void* address) {
  const auto number = reinterpret_cast<std::uintptr_t>(address) / kPage;
  Recent& recent = recent_[number % kRecent];
  if (recent.number == number) return recent.page;
  auto found = pages_.find(number);
  if (found == pages_.end()) {
    const auto* p = static_cast<const char*>(address);
    const bool is_shared =
        std::any_of(shared_.begin(), shared_.end(), [p](const Range& r) { return p >= r.first && p < r.second; });
    if (!is_shared && !memory_->contains(address, 1)) {
      recent = {number, nullptr};
      return nullptr;
    }
    auto page = std::make_unique<Page>();
    page->cells.resize(kPage / kCell);
    page->is_shared = is_shared;
    found = pages_.emplace(number, std::move(page)).first;
  }
  recent = {number, found->second.get()};
  return recent.page;
}

void Races::keep_read(Cell& cell, const Access& read, const bool (&is_ordered)[2]) {
  Access(&kept)[2] = cell.reads;
  for (int i = 0; i < 2; ++i) {
    if (kept[i].block != 0 && !is_ordered[i]) continue;
    kept[i] = read;  // and the other, if it is before this one as well, goes
    if (Access& other = kept[1 - i]; i == 0 && is_ordered[1]) other = {};
    return;
  }
  // Three that nothing orders. Two of different blocks stand for all, or two of different warps of one block, since a
  // write comes after one of them at the most.
  if (kept[0].block == kept[1].block &&
      (read.block != kept[0].block ||
       (kept[0].thread / kWarp == kept[1].thread / kWarp && read.thread / kWarp != kept[0].thread / kWarp)))
    kept[1] = read;
}

std::optional<Races::Race> Races::access(std::size_t thread, const void* address, std::size_t bytes, bool writes,
                                         bool strong, const void* where) {
  ++accesses_;
  Access now;
  now.where = where;
  now.block = block_;
  now.epoch = epoch_;
  now.clock = threads_[thread].clock;
  now.thread = static_cast<std::uint16_t>(thread);
  now.strong = strong;
  const auto* p = static_cast<const char*>(address);
  const auto* end = p + bytes;
  while (p < end) {
    Page* page = page_of(p);
    const std::size_t at = reinterpret_cast<std::uintptr_t>(p) % kPage;
    const auto left = std::min(static_cast<std::size_t>(end - p), kPage - at);
    if (page == nullptr) {  // past the end of an allocation, whose canary tells it
      p += left;
      continue;
    }
    if (!page->by_bytes && (at % kCell != 0 || left % kCell != 0)) {
      std::vector<Cell> cells(kPage);
      for (std::size_t i = 0; i < kPage; ++i) cells[i] = page->cells[i / kCell];
      page->cells = std::move(cells);
      page->by_bytes = true;
    }
    const std::size_t step = page->by_bytes ? 1 : kCell;
    for (std::size_t i = 0; i < left; i += step) {
      Cell& cell = page->cells[(at + i) / step];
      const auto race = [&](const Access& earlier, bool earlier_writes) {
        return Race{.block = block_indices_[earlier.block - first_block_],
                    .thread = earlier.thread,
                    .earlier = earlier.where,
                    .later = where,
                    .earlier_writes = earlier_writes,
                    .later_writes = writes,
                    .is_shared = page->is_shared,
                    .address = static_cast<const char*>(address),
                    .bytes = bytes};
      };
      if (!(cell.write.strong && strong) && !ordered(cell.write, thread, page->is_shared))
        return race(cell.write, true);
      if (writes) {
        for (const Access& read : cell.reads)
          if (!(read.strong && strong) && !ordered(read, thread, page->is_shared)) return race(read, false);
        cell.write = now;
        cell.reads[0] = cell.reads[1] = {};
      } else {
        keep_read(cell, now,
                  {ordered(cell.reads[0], thread, page->is_shared), ordered(cell.reads[1], thread, page->is_shared)});
      }
    }
    p += left;
  }
  return std::nullopt;
}

}  // namespace cuda_on_cpu
