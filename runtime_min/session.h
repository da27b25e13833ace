// What a model keeps on its device, whatever that is: tensors by name, the inputs and results of calls, the numbers of
// a step. A device is HostDevice (host_device.h), or another class with
//
//   static constexpr bool is_host             // its memory is the program's own
//   static constexpr std::size_t alignment    // of tensors, in bytes
//   Device(int number)                        // so many threads, or the device of this number
//   execution()                               // what kernels are called with
//   synchronize()                             // waits for all that was asked of it
//   rehearse(calls)                           // sees to it that the calls, when they are made, allocate nothing
//   require_memory(bytes, what)               // an error, where they are not to be had
//   upload(to, from, count), download(...)    // copies, when the device comes to it
//   copy(to, from, count)                     // the same, wherever the caller's side lies
//   class Guard                               // stands where the device of its number is used
//   class Memory                              // so many bytes: data()
//   class Mirror                              // the same, zero at first, and the host's copy of it
//   class PinnedMemory                        // so many bytes of the host, zero, from and to which it copies: data()
//   class Calls                               // run(device, sizes, calls): makes them, or replays what it recorded
//
// A device whose memory is the host's needs no copies.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <initializer_list>
#include <map>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "arena.h"
#include "error.h"
#include "safetensors.h"
#include "tensor.h"

namespace graven::runtime {

/// Pointers that will point into one block of memory, to tensors one after the other.
template <class Device>
class Slots {
 public:
  /// `slot` is to point to `count` elements. Returns their place in the block.
  template <class T>
  std::size_t add(T*& slot, std::size_t count) {
    const std::size_t offset = bytes_;
    bytes_ += (sizeof(T) * count + Device::alignment - 1) / Device::alignment * Device::alignment;
    slots_.push_back(
        {&slot, offset, count, [](void* at, char* tensor) { *static_cast<T**>(at) = reinterpret_cast<T*>(tensor); }});
    return offset;
  }
  std::size_t bytes() const { return bytes_; }
  /// The elements that `slot` was added with.
  template <class T>
  std::int64_t count_of(const T* const& slot) const {
    for (const Slot& s : slots_)
      if (s.at == static_cast<const void*>(&slot)) return static_cast<std::int64_t>(s.count);
    return 0;
  }
  /// The block has bytes() bytes.
  void point_into(char* block) const {
    for (const Slot& s : slots_) s.set(s.at, block + s.offset);
  }

 private:
  struct Slot {
    void* at;
    std::size_t offset, count;
    void (*set)(void* at, char* tensor);
  };
  std::vector<Slot> slots_;
  std::size_t bytes_ = 0;
};

/// Tensors that have names: weights, gradients, states. All are added, then there is memory for them, zero.
template <class Device>
class TensorBlock {
 public:
  /// Before any is added: the device has memory for those of these paths alone, and slots of others point to nothing.
  /// Of those the host has what was last written into it, zeros at first; what it has of them takes memory as it is
  /// written.
  void place_on_device(std::function<bool(const std::string& path)> is_on_device) {
    is_on_device_ = std::move(is_on_device);
  }
  /// `slot` is to point to a tensor; it must stay where it is. A function apart, so that a model's hundreds of tensors
  /// are quick to compile.
  template <class T>
  [[gnu::noinline]] void add(T*& slot, const char* path, DType dtype, std::initializer_list<std::int64_t> shape,
                             const Shard& shard = {}) {
    tensors_.push_back({path, dtype, shape, nullptr, shard});
    const bool is_here = !is_on_device_ || is_on_device_(tensors_.back().path);
    places_.push_back({is_here, is_here ? slots_.add(slot, static_cast<std::size_t>(tensors_.back().count()))
                                        : others_.add(tensors_.back().bytes())});
  }
  /// What was added under this path is a part of a tensor; nothing where there is none.
  void cut(const std::string& path, const Cut& how) {
    for (Variable& v : tensors_) {
      if (v.path != path) continue;
      v.shape[static_cast<std::size_t>(how.dim)] *= how.ranks;
      v.cut = how;
    }
  }
  /// On the device.
  std::size_t bytes() const { return slots_.bytes(); }
  void allocate(Device& device) {
    memory_.emplace(device, bytes());
    slots_.point_into(memory_->data());
    memory_of_others_ = Arena(others_.bytes());
  }
  typename Device::Mirror& memory() { return *memory_; }
  /// Where the device has the tensor of this path; nullptr where it has none.
  char* place(const std::string& path) const {
    for (std::size_t i = 0; i < tensors_.size(); ++i)
      if (tensors_[i].path == path && places_[i].is_on_device) return memory_->data() + places_[i].offset;
    return nullptr;
  }
  /// In the order in which they were added, where the host has them.
  std::vector<Variable> variables() const {
    std::vector<Variable> list = tensors_;
    for (std::size_t i = 0; i < list.size(); ++i) {
      const auto [is_on_device, offset] = places_[i];
      list[i].data = is_on_device ? memory_->host(memory_->data() + offset) : memory_of_others_.at<char>(offset);
    }
    return list;
  }
  /// The same, as the device has them now.
  std::vector<Variable> fetched(Device& device) {
    memory_->download(device);
    return variables();
  }

  /// The one element of a tensor, before anything else is written or read.
  template <class T>
  void set(Device& device, T* slot, T value) {
    std::memcpy(memory_->host(reinterpret_cast<char*>(slot)), &value, sizeof value);
    memory_->upload(device);
    device.synchronize();
  }

  /// Reads them from a safetensors file, all or nothing.
  void load(Device& device, const std::string& path) {
    load_variables(SafetensorsFile(path), variables());
    memory_->upload(device);
    device.synchronize();
  }
  /// Writes them; the old file stays until the new one is complete.
  void save(Device& device, const std::string& path, std::string_view graph_hash) {
    save_variables(path, fetched(device), {{"graph", std::string(graph_hash)}});
  }

 private:
  struct Place {
    bool is_on_device;
    std::size_t offset;  ///< there, or of the host's memory of the others
  };

  Slots<Device> slots_;
  ArenaPlan others_;
  std::function<bool(const std::string& path)> is_on_device_;  ///< empty: all are
  std::vector<Variable> tensors_;
  std::vector<Place> places_;
  std::optional<typename Device::Mirror> memory_;
  Arena memory_of_others_;
};

/// Inputs and outputs of calls. The host's stay where the caller has them; a device has memory of its own for them, of
/// the largest size. Counts are in elements, and may be left out where there is but one size.
template <class Device>
class CallMemory {
 public:
  /// On a device.
  template <class T>
  void add(T*& slot, std::size_t most) {
    slots_.add(slot, most);
  }
  std::size_t bytes() const { return slots_.bytes(); }
  void allocate(Device& device) {
    memory_.emplace(device, bytes());
    slots_.point_into(memory_->data());
  }
  /// `slot` points to what the caller has at `given`, once the device comes to the calls. `carrier`: the device, or
  /// what else copies to it.
  template <class Carrier, class T>
  void send(Carrier& carrier, const T*& slot, const T* given, std::int64_t count = -1) {
    if constexpr (Device::is_host)
      slot = given;
    else
      carrier.copy(const_cast<T*>(slot), given, count < 0 ? slots_.count_of(slot) : count);
  }
  /// Calls write to `slot`; fetch() after them brings it to `given`.
  template <class T>
  void receive(T*& slot, T* given) {
    if constexpr (Device::is_host) slot = given;
  }
  template <class T>
  void fetch(Device& device, T* given, T*& slot, std::int64_t count = -1) {
    if constexpr (!Device::is_host)
      device.copy(given, static_cast<const T*>(slot), count < 0 ? slots_.count_of(slot) : count);
  }

 private:
  Slots<Device> slots_;
  std::optional<typename Device::Memory> memory_;
};

/// What the host sees of tensors that calls computed: themselves, or copies of them.
template <class Device>
class Copies {
 public:
  /// The tensor, as soon as the device is synchronized. The copy of a path takes memory once. What a device has no
  /// memory for, another stage's, are zeros.
  Variable of(Device& device, Variable tensor) {
    if constexpr (!Device::is_host) {
      std::vector<char>& copy = copies_[tensor.path];
      copy.resize(tensor.bytes());
      if (tensor.data != nullptr)
        device.download(copy.data(), static_cast<const char*>(tensor.data), static_cast<std::int64_t>(copy.size()));
      tensor.data = copy.data();
    }
    return tensor;
  }

 private:
  std::map<std::string, std::vector<char>> copies_;
};

/// The losses of a step: numbers that calls compute one by one, of which the host wants the sum.
template <class Device>
class Losses {
 public:
  explicit Losses(std::size_t count) : memory_(count * sizeof(double)), numbers_(count) {}
  /// Loss `i` is `loss` as the device finds it when it comes here.
  template <class T>
  void fetch(Device& device, std::size_t i, const T* loss) {
    char* const at = memory_.data() + i * sizeof(double);
    if constexpr (Device::is_host)
      std::memcpy(at, loss, sizeof(T));
    else
      device.download(reinterpret_cast<T*>(at), loss, 1);
    read_as<T>(i);
  }
  /// Once the device is synchronized.
  double sum() const { return sum_of(memory_.data()); }
  /// One of them alone.
  double at(std::size_t i) const { return numbers_.at(i)(memory_.data() + i * sizeof(double)); }

  /// Instead of fetch(): on a device, `loss` as it finds it, in its own memory `at`, which has bytes() bytes.
  template <class T>
  void keep(Device& device, std::size_t i, const T* loss, char* at) {
    device.copy(reinterpret_cast<T*>(at + i * sizeof(double)), loss, 1);
    read_as<T>(i);
  }
  /// Of what was kept, and is on the host now.
  double sum_of(const char* kept) const {
    double sum = 0;
    for (std::size_t i = 0; i < numbers_.size(); ++i)
      if (numbers_[i] != nullptr) sum += numbers_[i](kept + i * sizeof(double));
    return sum;
  }
  std::size_t bytes() const { return numbers_.size() * sizeof(double); }

 private:
  template <class T>
  void read_as(std::size_t i) {
    numbers_[i] = [](const char* number) {
      T value;
      std::memcpy(&value, number, sizeof value);
      return static_cast<double>(value);
    };
  }
  typename Device::PinnedMemory memory_;
  std::vector<double (*)(const char* number)> numbers_;
};

/// The numbers that change from step to step, where the device reads them.
template <class Device, class Hyper>
class HyperMemory {
  static_assert(std::is_trivially_copyable_v<Hyper>);

 public:
  explicit HyperMemory(Device& device) : next_(sizeof(Hyper)), memory_(device, Device::is_host ? 0 : sizeof(Hyper)) {
    set({});
  }
  /// What the next calls find. The device is synchronized, or it might still read the numbers before.
  void set(const Hyper& numbers) { std::memcpy(next_.data(), &numbers, sizeof numbers); }
  void send(Device& device) {
    if constexpr (!Device::is_host)
      device.upload(memory_.data(), static_cast<const char*>(next_.data()), sizeof(Hyper));
  }
  /// By another carrier than the device, instead of set() and send().
  template <class Carrier>
  void send_ahead(Carrier& carrier, const Hyper& numbers) {
    carrier.copy(memory_.data(), static_cast<const char*>(static_cast<const void*>(&numbers)), sizeof(Hyper));
  }
  const Hyper* data() const {
    return static_cast<const Hyper*>(static_cast<const void*>(Device::is_host ? next_.data() : memory_.data()));
  }
  /// What random numbers of the next calls go by: the part, or the step, and the seed.
  std::array<std::int64_t, 2> random() const {
    return random_of(*static_cast<const Hyper*>(static_cast<const void*>(next_.data())));
  }

 private:
  template <class H>
  static std::array<std::int64_t, 2> random_of(const H& numbers) {
    if constexpr (requires { numbers.draw; })
      return {numbers.draw, numbers.seed};
    else
      return {numbers.step, numbers.seed};
  }

  typename Device::PinnedMemory next_;
  typename Device::Memory memory_;
};

/// A size that a call has: an error where it is none of those that the model was made for.
inline void require_size(const char* name, std::int64_t size, std::int64_t least, std::int64_t most = INT64_MAX) {
  if (size >= least && size <= most) return;
  const std::string range = most == INT64_MAX ? " or more" : " to " + std::to_string(most);
  throw BadArgument(std::string(name) + ": expected " + std::to_string(least) + range + ", found " +
                    std::to_string(size));
}

/// The order of a training's calls: a backward phase reads, once, what the forward phase before it has left in the
/// arena, and gradients add up from part to part of a step.
class CallOrder {
 public:
  /// A call begins to write what a forward phase has left: no later backward phase's, unless this one is refused.
  void begin() {
    was_ready_ = is_ready_;
    is_ready_ = false;
  }
  /// By a forward phase of these sizes, and with these random numbers (HyperMemory::random).
  void forwarded(std::initializer_list<std::int64_t> sizes, std::span<const std::int64_t> random = {}) {
    numbers_.assign(sizes);
    numbers_.insert(numbers_.end(), random.begin(), random.end());
    is_ready_ = true;
  }
  void require_forward(std::initializer_list<std::int64_t> sizes, std::span<const std::int64_t> random = {}) {
    if (!was_ready_)
      throw std::runtime_error("backward: expected behind a forward phase, and no step, update or evaluation between");
    if (std::equal(sizes.begin(), sizes.end(), numbers_.begin()) &&
        std::equal(random.begin(), random.end(), numbers_.end() - static_cast<std::ptrdiff_t>(random.size())))
      return;
    is_ready_ = true;
    throw BadArgument("backward: expected the sizes, step and seed of the forward phase," + list(numbers_) + ", found" +
                      list({sizes.begin(), sizes.size()}) + list(random));
  }

  /// A step begins with part 0, and goes on with the next one, of as many.
  void require_part(std::int64_t part, std::int64_t parts) const {
    if (part == 0 || (part == done_ && parts == parts_)) return;
    const std::string next = done_ < parts_ ? ", or " + std::to_string(done_) + " of " + std::to_string(parts_) : "";
    throw std::runtime_error("part: expected 0, with which a step begins" + next + ", found " + std::to_string(part) +
                             " of " + std::to_string(parts));
  }
  void did_part(std::int64_t part, std::int64_t parts) {
    done_ = part + 1;
    parts_ = parts;
  }
  /// Until then the gradients are a sum of some parts.
  void require_all_parts() const {
    if (done_ >= parts_) return;
    throw std::runtime_error("update: expected behind the last of the step's " + std::to_string(parts_) +
                             " parts, found behind " + std::to_string(done_));
  }

 private:
  static std::string list(std::span<const std::int64_t> numbers) {
    std::string text;
    for (const std::int64_t n : numbers) text += " " + std::to_string(n);
    return text;
  }

  bool is_ready_ = false, was_ready_ = false;
  std::vector<std::int64_t> numbers_;
  std::int64_t done_ = 0, parts_ = 0;  ///< of the step that is under way, or was the last one
};

}  // namespace graven::runtime
