"""Where this project and others meet: the engine as a model of lm-eval, and OpenVINO's engine as an outside arm.

May import: policies, protocol.command, protocol.formats, protocol.engine, protocol.grading, protocol.layers,
protocol.models, protocol.plan, protocol.tasks; lm_eval, numpy, openvino, openvino_genai, torch.
"""
