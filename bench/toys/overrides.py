"""Fields of single classes that the rules for names of fields do not fit, with the reason."""

from __future__ import annotations

from typing import Any

SWIN = {
    "image_size": 16,
    "patch_size": 4,
    "depths": [1, 1],
    "num_heads": [2, 2],
    "window_size": 2,
    "embed_dim": 8,
}
"""Windows that divide the picture in both stages."""
LEVIT = {
    "image_size": 64,
    "patch_size": 16,
    "hidden_sizes": [8, 8, 8],
    "num_attention_heads": [2, 2, 2],
    "depths": [1, 1, 1],
    "key_dim": [4, 4, 4],
}
"""The convolutions before the first layer halve the picture four times."""
MAMBA = {"mamba_n_heads": 4, "mamba_d_head": 8, "mamba_n_groups": 1, "mamba_d_state": 4}
"""Heads of the state space that together have twice the width."""
OVERRIDES: dict[str, dict[str, Any]] = {
    "BambaForCausalLM": MAMBA,
    "GraniteMoeHybridForCausalLM": MAMBA,
    "NemotronHForCausalLM": {"mamba_num_heads": 4, "mamba_head_dim": 8, "n_groups": 1},
    "Mamba2ForCausalLM": {"num_heads": 4, "head_dim": 8, "n_groups": 1, "state_size": 4},
    "Gemma3nForCausalLM": {"num_kv_shared_layers": 0},
    "FalconH1ForCausalLM": {**MAMBA, "mamba_d_ssm": 32},
    "CvtForImageClassification": {"depth": [1, 2], "cls_token": [False, True]},
    "DbrxForCausalLM": {"attn_config": {"kv_n_heads": 1, "rope_theta": 10000.0, "clip_qkv": 8.0}},
    "DoryForCausalLM": {
        "n_input_layers": 1,
        "n_recurrent_layers": 1,
        "n_output_layers": 1,
        "num_hidden_layers": 3,
        "layer_types": ["sliding_attention", "sliding_attention", "full_attention"],
    },
    "CodeGenForCausalLM": {"rotary_dim": 4},
    "GPTJForCausalLM": {"rotary_dim": 4},
    "SwinForImageClassification": SWIN,
    "Swinv2ForImageClassification": {**SWIN, "pretrained_window_sizes": [0, 0]},
    "DonutSwinForImageClassification": SWIN,
    "EfficientNetForImageClassification": {
        "width_coefficient": 1.0,
        "depth_coefficient": 1.0,
        "in_channels": [32, 8],
        "out_channels": [8, 8],
        "kernel_sizes": [3, 3],
        "strides": [1, 2],
        "num_block_repeats": [1, 1],
        "expand_ratios": [1, 2],
        "depthwise_padding": [],
        "hidden_dim": 1280,
    },
    "LevitForImageClassification": LEVIT,
    "LevitForImageClassificationWithTeacher": LEVIT,
    "ResNetForImageClassification": {"layer_type": "basic", "embedding_size": 4},
    "MobileViTForImageClassification": {
        "hidden_sizes": [8, 8, 8],
        "neck_hidden_sizes": [4, 4, 8, 8, 8, 8, 16],
    },
    "PerceiverForMaskedLM": {"num_latents": 4, "d_latents": 8, "num_self_attends_per_block": 1},
    "FunnelForMaskedLM": {"block_sizes": [1, 1]},
    "HieraForImageClassification": {
        "image_size": [32, 32],
        "patch_size": [7, 7],
        "depths": [1, 1],
        "num_heads": [1, 2],
        "mask_unit_size": [4, 4],
        "num_query_pool": 1,
        "embed_dim": 8,
    },
    "ConvNextForImageClassification": {"patch_size": 2, "image_size": 16},
    "ConvNextV2ForImageClassification": {"patch_size": 2, "image_size": 16},
    "HGNetV2ForImageClassification": {
        "depths": [1, 1],
        "hidden_sizes": [8, 8],
        "stem_channels": [3, 4, 8],
        "stage_in_channels": [8, 8],
        "stage_mid_channels": [4, 4],
        "stage_out_channels": [8, 8],
        "stage_num_blocks": [1, 1],
        "stage_downsample": [False, True],
        "stage_downsample_strides": [2, 2],
        "stage_light_block": [False, True],
        "stage_kernel_size": [3, 3],
        "stage_numb_of_layers": [1, 1],
    },
}
