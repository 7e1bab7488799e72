// Inputs of one call: rules by which the device fills a buffer, and on the device what has structure.
#pragma once
#include <map>
#include <vector>
#include "mskb/arena.h"
#include "mskb/buffers.h"
#include "mskb/device_work.h"
#include "mskb/random.h"

namespace mskb {

class Inputs {
  public:
    // Inputs number `stream` of a case: the same ones for the same seed, however often they are made. Structure is
    // taken over from `donor` where one is given; everything else is this stream's own.
    Inputs(const Task& task, const Row& row, const std::vector<BufferSpec>& specs, uint64_t seed,
           uint64_t case_stream, uint64_t stream, const Inputs* donor = nullptr)
        : specs_(specs), rng_(seed, case_stream, stream), donor_(donor) {
        for (size_t i = 0; i < specs.size(); ++i)
            keys_.push_back(rng_.bits());
        task.generate(row.sizes, *this);
        donor_ = nullptr;
        for (size_t i = 0; i < specs.size(); ++i)
            if (specs[i].is_read() && !rules_.count(i) && !made_.count(i))
                harness_failure(std::string("the card has no input for ") + specs[i].name);
    }

    const BufferSpec& spec(int buffer) const { return specs_.at(buffer); }
    Rng& rng() { return rng_; }
    double structure_seconds() const { return structure_seconds_; }
    // No other inputs of this process have this number.
    uint64_t serial() const { return serial_; }
    size_t structure_bytes() const {
        size_t bytes = 0;
        for (const auto& [buffer, made] : owned_)
            bytes += made.bytes();
        return bytes;
    }

    void rule(int buffer, Generator generator, double a = 0, double b = 0, double outliers = 1) {
        rules_[buffer] = {generator, keys_.at(buffer), a, b, outliers};
    }

    // Buffers that `make` fills together on the host, given a pointer to each.
    template <class Make> void structure(const std::vector<int>& buffers, const Make& make) {
        Clock::time_point start = Clock::now();
        std::vector<std::vector<unsigned char>> host;
        if (donor_ == nullptr) {
            std::vector<void*> pointers;
            for (int buffer : buffers) {
                host.emplace_back(std::max<size_t>(spec(buffer).bytes(), 8));
                pointers.push_back(host.back().data());
            }
            make(pointers);
        }
        for (size_t k = 0; k < buffers.size(); ++k) {
            if (donor_ != nullptr) {
                made_[buffers[k]] = donor_->made_.at(buffers[k]);
                continue;
            }
            ReusedBuffer& made = owned_.try_emplace(buffers[k], spec(buffers[k]).bytes()).first->second;
            MSKB_CUDA(cudaMemcpy(made.get(), host[k].data(), made.bytes(), cudaMemcpyHostToDevice));
            made_[buffers[k]] = &made;
        }
        structure_seconds_ += seconds_since(start);
    }

    // Puts the inputs into the working buffers, without `fills` only what has structure, and poisons outputs, if anybody
    // looks at them.
    void place(const std::vector<WorkingBuffer>& working, bool poisons = true, bool fills = true) const {
        for (size_t i = 0; i < specs_.size(); ++i) {
            if (auto found = rules_.find(i); found != rules_.end() && !fills)
                continue;
            else if (found != rules_.end())
                fill(working[i].get(), specs_[i], found->second);
            else if (auto made = made_.find(i); made != made_.end())
                MSKB_CUDA(cudaMemcpyAsync(working[i].get(), made->second->get(), specs_[i].bytes(),
                                          cudaMemcpyDeviceToDevice));
            else if (poisons)
                MSKB_CUDA(cudaMemsetAsync(working[i].get(), poison_byte(specs_[i].kind), specs_[i].bytes()));
        }
    }

    // Puts one input into the host's memory, past the working buffers.
    void copy(size_t buffer, void* host) const {
        size_t bytes = specs_[buffer].bytes();
        auto found = rules_.find(buffer);
        if (found == rules_.end()) {
            MSKB_CUDA(cudaMemcpy(host, made_.at(buffer)->get(), bytes, cudaMemcpyDeviceToHost));
            return;
        }
        ReusedBuffer filled(bytes);
        fill(filled.get(), specs_[buffer], found->second);
        MSKB_CUDA(cudaMemcpy(host, filled.get(), bytes, cudaMemcpyDeviceToHost));
    }

    // Whether the input is no longer what `place` put there.
    bool changed(size_t buffer, const void* working) const {
        auto found = rules_.find(buffer);
        return found != rules_.end() ? differs(working, specs_[buffer], found->second)
                                     : differs(working, made_.at(buffer)->get(), specs_[buffer].bytes());
    }

  private:
    const std::vector<BufferSpec>& specs_;
    Rng rng_;
    const Inputs* donor_;
    std::vector<uint64_t> keys_; // per buffer
    std::map<int, Fill> rules_;
    std::map<int, ReusedBuffer> owned_;
    std::map<int, const ReusedBuffer*> made_; // own or the donor's, which lives longer
    double structure_seconds_ = 0;
    inline static uint64_t made_so_far_ = 0;
    uint64_t serial_ = ++made_so_far_;
};

} // namespace mskb
