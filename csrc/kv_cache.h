// Keys and values in pages of kPagePositions positions. Sessions share whole pages by reference and copy a page only
// when they are about to write to one that another session holds, too.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "kernels/kernels.h"

namespace outpace {

struct CacheShape {
  int layers, kv_heads, head_dim;

  size_t block() const { return size_t(head_dim) * kPagePositions; }  // f16 keys (or values) of one head in a page
  size_t page() const { return size_t(layers) * kv_heads * 2 * block(); }
  size_t keys_at(int layer, int head) const { return (size_t(layer) * kv_heads + head) * 2 * block(); }
  size_t values_at(int layer, int head) const { return keys_at(layer, head) + block(); }
};

using Page = std::shared_ptr<uint16_t[]>;

// The pages of one model's sessions, those in use and those free to be used again. A page keeps the cache alive.
class KvCache : public std::enable_shared_from_this<KvCache> {
 public:
  KvCache(CacheShape shape, int context) : shape(shape), context(context) {}

  Page take();  // its contents are those of its last use; throws std::bad_alloc
  size_t pages_in_use() const;
  size_t pages_free() const;

  const CacheShape shape;
  const int context;  // positions that a session may hold
  std::mutex busy;    // held by whoever reads or changes a session

 private:
  using Memory = std::unique_ptr<uint16_t[], void (*)(void*)>;
  void give_back(Memory memory) noexcept;

  mutable std::mutex mutex_;
  std::vector<Memory> free_;
  size_t in_use_ = 0;
};

// The tokens of one request that are cached, and the nodes that were scored after them and wait for `commit`. Row r of
// what is staged lies in the slot of position length() + r; a tree's commit moves its path to the positions that it takes.
// Nothing here locks: callers hold cache()->busy.
class Session {
 public:
  explicit Session(std::shared_ptr<KvCache> cache) : cache_(std::move(cache)) {}

  int length() const { return int(tokens_.size()); }
  const std::vector<int32_t>& tokens() const { return tokens_; }
  const std::shared_ptr<KvCache>& cache() const { return cache_; }
  bool closed() const { return closed_; }

  // A session that holds the first `length` tokens of this one. Throws std::invalid_argument.
  std::shared_ptr<Session> fork(int length) const;
  void rewind(int length);  // forgets what follows the first `length` tokens. Throws std::invalid_argument.
  void close();             // gives the pages back; only close() is allowed afterwards

  // Row 0 follows the cached tokens; row i + 1 follows row parents[i] + 1. Forgets an earlier stage, makes room.
  // Throws std::invalid_argument on bad parents or when the deepest row does not fit in the context.
  void stage(std::vector<int32_t> tokens, std::vector<int32_t> parents);
  // Keeps row 0 and the rows path[i] + 1, which lead from row 0 down; forgets the others. Throws
  // std::invalid_argument when nothing is staged or `path` is not such a path.
  void commit(const std::vector<int32_t>& path);
  void commit_all();  // the same for a whole chain
  void unstage();     // forgets all of them

  // -- what a forward pass asks about the staged rows -------------------------------------------------------------
  int staged() const { return int(staged_tokens_.size()); }
  int32_t token(int row) const { return staged_tokens_[row]; }
  int position(int row) const { return length() + depths_[row]; }
  bool is_chain() const { return is_chain_; }
  int last_position() const { return length() + deepest_; }

  // Stores one row's key and value of one head; f16 [head_dim] each.
  void store(int row, int layer, int head, const uint16_t* key, const uint16_t* value);
  // The blocks [0, blocks) as pages hold them.
  void blocks(int layer, int head, int blocks, const uint16_t** keys, const uint16_t** values) const;

  int slots() const { return length() + staged(); }
  // Where a tree's row reads the positions from length() + 1 on: the slots of its own path, of which there may be up to
  // path_stride(). Rows follow one another.
  const int* path(int row) const { return paths_.data() + row * path_stride(); }
  ptrdiff_t path_stride() const { return deepest_; }

 private:
  void require_open() const;
  void make_room(int positions);  // pages for [0, positions), the ones from length() on held by nobody else
  void move(int from, int to);     // a slot's keys and values to another's

  const std::shared_ptr<KvCache> cache_;
  bool closed_ = false;
  std::vector<int32_t> tokens_;
  std::vector<Page> pages_;

  std::vector<int32_t> staged_tokens_, parents_, depths_;
  bool is_chain_ = true;
  int deepest_ = 0;
  std::vector<int> paths_;  // of a tree: [row][path_stride()]
};

}  // namespace outpace
